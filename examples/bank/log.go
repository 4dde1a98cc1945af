// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
)

// eventLog appends records to a file, as one line of JSON and one unbuffered write each, so that no
// record is lost when the process is killed. A nil *eventLog discards all records.
type eventLog struct {
	mu   sync.Mutex
	file *os.File
	err  error // the first error
}

type logRecord struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Account string    `json:"account"`
	Line    uint64    `json:"line,omitempty"`    // line number in the file; for "line" only
	Outcome string    `json:"outcome,omitempty"` // outcome of a line or of a settled transfer
	Code    string    `json:"code,omitempty"`    // the code of a refused line
	Number  uint64    `json:"number,omitempty"`  // number of the event, or of the last recovered event
	Error   string    `json:"error,omitempty"`   // error of a failed recovery
}

func openLog(path string) (*eventLog, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil *eventLog discards all records
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the path is the operator's
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &eventLog{file: file}, nil
}

func (l *eventLog) write(r logRecord) {
	if l == nil {
		return
	}
	r.Time = time.Now().UTC()
	data, err := json.Marshal(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(data, '\n'))
	}
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("write the log: %w", err)
	}
}

// Close closes the log, and returns the first error.
func (l *eventLog) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.file.Close())
}

func (l *eventLog) observer() eventsourcing.Observer {
	if l == nil {
		return eventsourcing.Observer{}
	}
	return eventsourcing.Observer{
		RecoveryStarted: func(id string) {
			l.write(logRecord{Event: "recovery_started", Account: accountOf(id)})
		},
		Recovery: func(i eventsourcing.RecoveryInfo) {
			r := logRecord{Event: "recovery_ended", Account: accountOf(i.PersistenceID), Number: i.SequenceNr}
			if i.Err != nil {
				r.Error = i.Err.Error()
			}
			l.write(r)
		},
	}
}

// watch returns a journal that logs transfers after they are stored.
func (l *eventLog) watch(j journal.Journal) journal.Journal {
	if l == nil {
		return j
	}
	return &watchedJournal{Journal: j, log: l}
}

func accountOf(persistenceID string) string {
	_, id := journal.SplitID(persistenceID)
	return id
}

type watchedJournal struct {
	journal.Journal
	log *eventLog
}

// Unwrap is part of journal.Wrapper.
func (w *watchedJournal) Unwrap() journal.Journal { return w.Journal }

func (w *watchedJournal) Append(ctx context.Context, writes []journal.Write) []error {
	errs := w.Journal.Append(ctx, writes)
	for i := range writes {
		if errs != nil && errs[i] != nil {
			continue
		}
		for _, e := range writes[i].Events {
			r, ok := map[string]logRecord{
				"transfer_started":   {Event: "transfer_debited"},
				"credited":           {Event: "transfer_credited"},
				"transfer_completed": {Event: "transfer_settled", Outcome: "completed"},
				"transfer_refunded":  {Event: "transfer_settled", Outcome: "refunded"},
			}[e.Manifest]
			if ok {
				r.Account, r.Number = accountOf(writes[i].ID), e.SequenceNr
				w.log.write(r)
			}
		}
	}
	return errs
}
