// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/journal"
)

// Config configures a Projection.
type Config[E any] struct {
	// Name is what positions are kept under: 1 to 255 bytes of valid UTF-8
	// without control characters. It must never change. Required.
	Name string
	// Journal is where the events are. It, or a journal that it wraps, has to
	// implement journal.Querier. The projection does not close it. Required.
	Journal journal.Journal
	// Criteria say which events to read. Their Slices are divided among the workers
	// and must be zero. Who changes them rebuilds, or takes another name:
	// what was passed over is not looked at again. Defaults to all events.
	Criteria journal.Criteria
	// Events decodes them: the registry of an eventsourcing.Type. What it does not
	// know can't be decoded, and two types may mean different things by one name,
	// so Criteria.Type should be that type. Required.
	Events *codec.Registry
	// Handler is how events reach the read model. Required.
	Handler Handler[E]
	// Workers is how many ranges of slices are handled side by side. The events
	// of one persistence ID always are in order. It has to divide 1,024. When it
	// grows, ranges are divided; when it shrinks, the ranges stay as they are
	// until the next Rebuild, with one worker each. Defaults to 1.
	Workers int
	// OnFailure says what to do about an event that can't be handled. Defaults to
	// failing.
	OnFailure Strategy
	// MinBackoff and MaxBackoff bound the pause after which a worker that failed
	// begins again at its stored position. It doubles each time, until the position
	// has moved or there is nothing to do. They default to 3 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// BackoffJitter draws a pause out by up to this share of it. Defaults to
	// 0.2; negative means none.
	BackoffJitter float64
	// MaxRestarts is how often in a row a worker begins again: one more failure and
	// Run, or CatchUp, returns the error. To be fenced by another process, which
	// does the work meanwhile, does not count. Defaults to 10 for CatchUp, about
	// four minutes, and to no limit for Run; negative means never.
	MaxRestarts int
	// Logger gets a line for each failure, with the attempt, the error and when the
	// next one is, and for each event that is tried again or skipped. Defaults to
	// none; then only Observer and Status tell why nothing happens.
	Logger *slog.Logger
	// Observer is told what happens. Defaults to nothing.
	Observer Observer
}

func (c Config[E]) withDefaults() Config[E] {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Workers = cmp.Or(c.Workers, 1)
	c.OnFailure = c.OnFailure.withDefaults()
	return c.withBackoffDefaults()
}

// build checks a configuration and returns what is made of it.
func (c Config[E]) build() (journal.Querier, delivery[E], error) {
	var (
		errs    = []error{checkName(c.Name), c.OnFailure.validate(), c.checkBackoff()}
		querier journal.Querier
		d       delivery[E]
		err     error
	)
	if c.Journal == nil {
		errs = append(errs, fmt.Errorf("%w: Config.Journal is required", ErrInvalid))
	} else if q, ok := journal.As[journal.Querier](c.Journal); ok {
		querier = q
	} else {
		errs = append(errs, fmt.Errorf("%w: Config.Journal: %w", ErrInvalid, journal.ErrNoQueries))
	}
	if c.Criteria.Slices != (journal.Slices{}) {
		errs = append(errs, fmt.Errorf("%w: Config.Criteria.Slices is set; use Config.Workers", ErrInvalid))
	}
	if c.Events == nil {
		errs = append(errs, fmt.Errorf("%w: Config.Events is required", ErrInvalid))
	} else if err = c.Events.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%w: Config.Events: %w", ErrInvalid, err))
	}
	if _, err = journal.SplitSlices(c.Workers); err != nil {
		errs = append(errs, fmt.Errorf("%w: Config.Workers: %w", ErrInvalid, err))
	}
	if c.Handler == nil {
		errs = append(errs, fmt.Errorf("%w: Config.Handler is required", ErrInvalid))
	} else if d, err = c.Handler.delivery(); err != nil {
		errs = append(errs, err) // it names the handler
	}
	if d.before && c.OnFailure.Retries > 0 {
		errs = append(errs, fmt.Errorf("%w: Config.OnFailure.Retries with AtMostOnce, which never tries twice", ErrInvalid))
	}
	return querier, d, errors.Join(errs...)
}

// checkName returns an error for a name that no store accepts.
func checkName(name string) error {
	if name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: the name %q: 1 to 255 bytes of valid UTF-8 without control characters are needed", ErrInvalid, name)
	}
	return nil
}

// Strategy says what to do about an event that the handler returns an error
// for, or panics at, or that can't be decoded:
//
//	Strategy{}                        fails: nothing behind the event is handled until it can be
//	Strategy{Skip: true}              skips it at once
//	Strategy{Retries: 5}              tries it 5 times more, 1 s apart, and then fails
//	Strategy{Retries: 5, Skip: true}  likewise, and then skips it
type Strategy struct {
	// Retries is how often to try again. What can't be decoded is not tried
	// again. Defaults to 0.
	Retries int
	// Delay is the time between two attempts. Defaults to 1 s.
	Delay time.Duration
	// Skip goes on with the next event then, after the event was logged and
	// shown to the Observer. The default is to fail: the worker begins again, at
	// this event, after the pauses of Config.MinBackoff and its relatives.
	Skip bool
}

func (s Strategy) withDefaults() Strategy {
	s.Delay = cmp.Or(s.Delay, time.Second)
	return s
}

func (s Strategy) validate() error {
	var errs []error
	if s.Retries < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.OnFailure.Retries is negative", ErrInvalid))
	}
	if s.Delay < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.OnFailure.Delay is negative", ErrInvalid))
	}
	return errors.Join(errs...)
}

// arrange returns the positions with which a number of workers begins, given
// those that are stored. A range that is too large for one of them is divided,
// and its parts begin where it was. Ranges are never joined, as there may be
// events that one of them has handled and the other has not: then there are more
// ranges than asked for.
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
			return nil, fmt.Errorf("%w: the stored ranges of slices do not fit: %s where slice %d should begin one", ErrInvalid, p.Slices, next)
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

// mustClear reports whether a rebuild was asked for.
func mustClear(positions []Position) bool {
	for _, p := range positions {
		if p.Clear {
			return true
		}
	}
	return false
}
