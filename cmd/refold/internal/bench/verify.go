// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"

	"github.com/refold-io/refold/cmd/refold/operator"
	"github.com/refold-io/refold/eventsourcing"
)

// verify checks after a run that the counters hold what was added, and that the
// journal is whole.
func verify(ctx context.Context, s *database, targets []eventsourcing.Ref[command], want int64) error {
	var sum int64
	for _, to := range targets {
		n, err := eventsourcing.Ask(ctx, to, read{})
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		sum += n
	}
	if sum != want {
		return fmt.Errorf("verify: the counters hold %d, but %d were added", sum, want)
	}
	report, err := operator.Verify(ctx, s.journal, operator.VerifyOptions{})
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("verify: %d problems, the first: %w", len(report.Problems), report.Problems[0])
	}
	if report.Records != uint64(want) { //nolint:gosec // a count
		return fmt.Errorf("verify: the journal holds %d records, but %d were added", report.Records, want)
	}
	return nil
}
