/* normalform.h -- Unicode's four normal forms (Standard Annex #15), for text that must not lose its provenance. */
#ifndef RG_TEXT_NORMALFORM_H
#define RG_TEXT_NORMALFORM_H

#include "text/passage.h"

/* Write p's normal form, composed or not, of compatibility or not.  Linear in the text, whatever it is. */
bool rg_normal_form(const rg_passage *p, bool compose, bool compat, rg_draft *out, rg_error *err);

#endif
