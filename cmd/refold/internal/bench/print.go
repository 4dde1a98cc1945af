// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes a result as one line.
func WriteJSON(w io.Writer, r Result) error { return json.NewEncoder(w).Encode(r) }

// WriteHeader writes the head of the table of WriteRow.
func WriteHeader(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%-17s %-8s %12s %-13s %12s %8s  %-9s %-4s %s\n",
		"name", "journal", "value", "unit", "limit", "ratio", "goal", "met", "settings")
	return err
}

// WriteRow writes a result as a row of a table.
func WriteRow(w io.Writer, r Result) error {
	goal := fmt.Sprintf("≥ %g", r.Goal)
	if r.Better == lower {
		goal = fmt.Sprintf("≤ %g", r.Goal)
	}
	met := "–"
	if r.Met != nil {
		met = "no"
		if *r.Met {
			met = "yes"
		}
	}
	limit, ratio := "", ""
	if r.Limit != 0 {
		limit, ratio = number(r.Limit), fmt.Sprintf("%.2f", r.Ratio)
	}
	settings := r.Settings
	if r.Detail != "" {
		settings += "; " + r.Detail
	}
	_, err := fmt.Fprintf(w, "%-17s %-8s %12s %-13s %12s %8s  %-9s %-4s %s\n",
		r.Name, r.Journal, number(r.Value), r.Unit, limit, ratio, goal, met, settings)
	return err
}

// number writes large figures whole and small ones with some digits.
func number(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
