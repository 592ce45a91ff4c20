/* The header of a safetensors file: eight bytes of length, then JSON that names every tensor, then the tensors. */
#ifndef LARDER_ENGINE_SAFETENSORS_H
#define LARDER_ENGINE_SAFETENSORS_H

#include "engine/files/tensor_list.h"

/* Adds the tensors of one file to `l`; their data points into `file`, which must outlive the list. After an error the
 * list may hold some of them. INVALID with file, tensor, what was expected and what was found; LIMIT; NO_MEMORY.
 * A number without dimensions becomes a row of one. Types that larder does not read, names that appear twice in the
 * JSON (one way of hiding a tensor), and bytes that no tensor owns are refused. */
LAR_MUST_USE lar_error lar_safetensors_read(const lar_file_view *file, lar_tensor_list *l, lar_diag *d);

#endif
