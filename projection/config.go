// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/journal"
)

// Config configures a Projection.
type Config[E any] struct {
	// Name identifies the stored positions: 1 to 255 bytes of valid UTF-8 without control
	// characters. It must never change. Required.
	Name string
	// Journal holds the events. The journal, or a journal that it wraps, must implement
	// journal.Querier. The projection does not close the journal. Required.
	Journal journal.Journal
	// Criteria selects the events. Its Slices must be zero; they are divided among the workers. A
	// change of the criteria requires a rebuild or a new name, because events that were skipped
	// before are not read again. Defaults to all events, without those of Refold itself.
	Criteria journal.Criteria
	// Events decodes the events: the registry of an eventsourcing.Type. Unknown events cannot be
	// decoded, and two types may use one name for different events, so set Criteria.Types to the
	// same type. Required.
	Events *codec.Registry
	// Handler applies events to the read model. Required.
	Handler Handler[E]
	// Workers is the number of ranges of slices that are handled concurrently. The events of one
	// persistence ID are always handled in order. Workers must divide 1,024. When Workers is
	// increased, ranges are divided. When it is decreased, the ranges remain until the next
	// Rebuild, and each keeps its own worker. Defaults to 1.
	Workers int
	// OnFailure is the treatment of events that cannot be handled. Defaults to failing.
	OnFailure Strategy
	// MinBackoff and MaxBackoff limit the pause after which a failed worker restarts at its stored
	// position. The pause doubles with each failure, until the position moves or no event is
	// pending. They default to 3 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// BackoffJitter is the maximum random extension of a pause, as a share of it, at most 1.
	// Defaults to 0.2; a negative value disables it.
	BackoffJitter float64
	// MaxRestarts is the maximum number of consecutive restarts of a worker. After one more failure
	// Run or CatchUp returns the error. A restart after ErrFenced does not count, because another
	// process handles the events. Defaults to 10 for CatchUp (about four minutes) and to no limit
	// for Run. A negative value disables restarts.
	MaxRestarts int
	// Logger logs each failure with the attempt, the error and the time of the next attempt, and
	// each event that is retried or skipped. Defaults to none; failures are then visible only
	// through Observer and Status.
	Logger *slog.Logger
	// Observer receives events of the projection. Optional.
	Observer Observer
}

func (c Config[E]) withDefaults() Config[E] {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Workers = cmp.Or(c.Workers, 1)
	c.OnFailure.Delay = cmp.Or(c.OnFailure.Delay, time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 3*time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, max(30*time.Second, c.MinBackoff))
	c.BackoffJitter = max(0, cmp.Or(c.BackoffJitter, 0.2))
	return c
}

// problems collects the invalid fields of a configuration.
type problems struct{ fielderror.Errors }

func (p *problems) require(ok bool, field, problem string, args ...any) {
	if !ok {
		p.Addf(field, problem, args...)
	}
}

// build validates the configuration and returns its parts.
func (c Config[E]) build() (querier journal.Querier, d delivery[E], err error) {
	var errs problems
	errs.require(validName(c.Name), "Config.Name", "is %q, want 1 to 255 bytes of valid UTF-8 without control characters", c.Name)
	errs.require(c.OnFailure.Retries >= 0, "Config.OnFailure.Retries", "is %d, want at least 0", c.OnFailure.Retries)
	errs.require(c.OnFailure.Delay >= 0, "Config.OnFailure.Delay", "is %v, want at least 0", c.OnFailure.Delay)
	errs.require(c.MinBackoff >= 0, "Config.MinBackoff", "is %v, want at least 0", c.MinBackoff)
	errs.require(c.MaxBackoff >= c.MinBackoff, "Config.MaxBackoff", "is %v, less than Config.MinBackoff %v", c.MaxBackoff, c.MinBackoff)
	errs.require(c.BackoffJitter <= 1, "Config.BackoffJitter", "is %v, want at most 1", c.BackoffJitter) // also for a NaN
	errs.require(c.Criteria.Slices == journal.Slices{}, "Config.Criteria.Slices", "is set; use Config.Workers")
	errs.require(c.Journal != nil, "Config.Journal", "is required")
	errs.require(c.Events != nil, "Config.Events", "is required")
	errs.require(c.Handler != nil, "Config.Handler", "is required")
	_, err = journal.SplitSlices(c.Workers)
	errs.Add("Config.Workers", err)
	if c.Journal != nil {
		var ok bool
		if querier, ok = journal.As[journal.Querier](c.Journal); !ok {
			errs.Add("Config.Journal", journal.ErrNoQueries)
		}
	}
	if c.Events != nil {
		errs.Add("Config.Events", c.Events.Err())
	}
	if c.Handler != nil {
		d = c.Handler.delivery(&errs)
	}
	errs.require(!d.before || c.OnFailure.Retries <= 0, "Config.OnFailure.Retries", "is not allowed with AtMostOnce")
	return querier, d, errs.Err(ErrInvalid)
}

// validName reports whether every store accepts a name.
func validName(name string) bool {
	return name != "" && len(name) <= 255 && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Strategy is the treatment of an event that the handler fails or panics on, or that cannot be
// decoded:
//
//	Strategy{}                        fail: no later event is handled until this one succeeds
//	Strategy{Skip: true}              skip it immediately
//	Strategy{Retries: 5}              retry it 5 times, 1 s apart, then fail
//	Strategy{Retries: 5, Skip: true}  retry it 5 times, then skip it
type Strategy struct {
	// Retries is the number of retries. Events that cannot be decoded are not retried. Defaults to
	// 0.
	Retries int
	// Delay is the time between two attempts. Defaults to 1 s.
	Delay time.Duration
	// Skip continues with the next event after the retries. The skipped event is logged and passed
	// to the Observer. By default the worker fails: it restarts at this event after the pauses of
	// Config.MinBackoff and MaxBackoff.
	Skip bool
}

// arrange returns the initial positions for a number of workers, given the stored ones. A range
// that is too large for one worker is divided, and its parts start at the position of the range.
// Ranges are never merged, because their positions may differ. The result may therefore have more
// ranges than requested.
func arrange(stored []Position, workers int) ([]Position, error) {
	ranges, err := journal.SplitSlices(workers)
	if err != nil {
		return nil, err
	}
	size := ranges[0].Count
	if len(stored) == 0 {
		positions := make([]Position, len(ranges))
		for i, r := range ranges {
			positions[i].Slices = r
		}
		return positions, nil
	}
	var positions []Position
	next := 0
	for _, p := range stored {
		if p.Slices.First != next || p.Slices.Count < 1 || p.Slices.Count > size && p.Slices.Count%size != 0 {
			return nil, fmt.Errorf("%w: stored ranges of slices: got range %s, want a range that starts at slice %d", ErrInvalid, p.Slices, next)
		}
		next += p.Slices.Count
		count := min(size, p.Slices.Count)
		for first := p.Slices.First; first < next; first += count {
			part := p
			part.Slices = journal.Slices{First: first, Count: count}
			positions = append(positions, part)
		}
	}
	if next != journal.SliceCount {
		return nil, fmt.Errorf("%w: the stored ranges of slices end at %d of %d", ErrInvalid, next, journal.SliceCount)
	}
	return positions, nil
}

// mustClear reports whether a rebuild was requested.
func mustClear(positions []Position) bool {
	return slices.ContainsFunc(positions, func(p Position) bool { return p.Clear })
}
