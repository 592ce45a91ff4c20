/* What the checks of one request and of two share: fields, images, notes. Private to the checks. */
#ifndef LARDER_POLICIES_CHECKS_PARTS_H
#define LARDER_POLICIES_CHECKS_PARTS_H

#include "policies/checks.h"

/* A field that names a user, a session or a cache. */
typedef struct lar_check_field {
    const char *name, *in; /* member, and the object of the body that holds it; NULL: the body */
    const char *effect;    /* what it does to a cache, where the provider is not known or not named here */
    const char *provider, *there; /* whose cache it splits or routes, and how */
    bool random_is_usual;         /* a random value that stays is what it is for */
} lar_check_field;

enum { LAR_CHECK_FIELDS = 6 };
const lar_check_field *lar_check_fields(void);
/* The field's value node, or NONE. */
uint32_t lar_check_field_get(const lar_request_view *v, const lar_check_field *f);
/* What it does under that provider. */
const char *lar_check_field_effect(const lar_check_field *f, lar_slice provider);

/* The address of an image part, a string node that begins with http; NONE if the part holds none. */
uint32_t lar_check_image(const lar_request_view *v, uint32_t part);

/* Adds a note on a whole node. */
LAR_MUST_USE lar_error lar_check_note(lar_notes *notes, const lar_json *j, lar_note note);

#endif
