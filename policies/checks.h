/* What a request's fields and texts do to a prefix cache, for the linter: rules LR101 to LR105. Pure; notes only. */
#ifndef LARDER_POLICIES_CHECKS_H
#define LARDER_POLICIES_CHECKS_H

#include "policies/notes.h"
#include "policies/protocol.h"

/* One request, read alone: what it shows is a suspicion. LR101 placeholders that nobody filled in, LR102 a request
 * field that looks as if it were made up for this request, LR104 images by an address that expires or changes,
 * LR105 such addresses in text. `provider`: as lar_history_check; empty if unknown. NO_MEMORY. */
LAR_MUST_USE lar_error lar_check_request(const lar_request_view *v, lar_slice provider, lar_notes *notes);

/* Two requests of one client and one template, in their order: what it shows is confirmed. LR102 fields that name
 * user, session or cache and change, LR103 settings that switch inside a conversation, LR104 another address for the
 * image at the same place. Notes point into `after`. NO_MEMORY. */
LAR_MUST_USE lar_error lar_check_pair(const lar_request_view *before, const lar_request_view *after, lar_slice provider,
                                      lar_notes *notes);

#endif
