// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
)

// The bodies of answers. Amounts are strings, so that no reader makes binary
// fractions of them.
type (
	accountBody struct {
		ID         string        `json:"id"`
		Owner      string        `json:"owner"`
		Status     string        `json:"status"`
		Balance    string        `json:"balance"`
		Currency   string        `json:"currency"`
		InFlight   string        `json:"in_flight"`
		Pending    []pendingBody `json:"pending"`
		LastChange *time.Time    `json:"last_change,omitempty"`
		Event      uint64        `json:"event,omitempty"`
		Value      *valueBody    `json:"value,omitempty"`
	}
	pendingBody struct {
		Transfer uint64 `json:"transfer"`
		To       string `json:"to"`
		Amount   string `json:"amount"`
	}
	valueBody struct {
		Amount   string     `json:"amount"`
		Currency string     `json:"currency"`
		Rate     string     `json:"rate,omitempty"`
		Source   string     `json:"source,omitempty"`
		AsOf     *time.Time `json:"as_of,omitempty"`
	}
	receiptBody struct {
		Balance  string `json:"balance"`
		Currency string `json:"currency"`
		Transfer uint64 `json:"transfer,omitempty"`
	}
	statementBody struct {
		Account string     `json:"account"`
		Lines   []lineBody `json:"lines"`
		Next    uint64     `json:"next,omitempty"`
	}
	lineBody struct {
		Number   uint64    `json:"number"`
		Time     time.Time `json:"time"`
		Event    string    `json:"event"`
		Change   string    `json:"change"`
		Balance  string    `json:"balance"`
		Currency string    `json:"currency"`
		Details  string    `json:"details,omitempty"`
	}
	errorBody struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
)

func accountJSON(id string, v View, event uint64) accountBody {
	body := accountBody{
		ID: id, Owner: v.Owner, Status: status(v), Event: event,
		Balance: v.Balance.Decimal(), Currency: string(v.Currency), InFlight: v.InFlight.Decimal(), Pending: []pendingBody{},
	}
	if !v.LastChange.IsZero() {
		body.LastChange = &v.LastChange
	}
	for _, p := range v.Pending {
		body.Pending = append(body.Pending, pendingBody{p.Transfer, p.To, p.Amount.Decimal()})
	}
	if x := v.Value; x.Amount != (money.Amount{}) {
		body.Value = &valueBody{Amount: x.Amount.Decimal(), Currency: string(x.Amount.Currency()), Rate: string(x.Rate), Source: x.Source}
		if !x.AsOf.IsZero() {
			body.Value.AsOf = &x.AsOf
		}
	}
	return body
}

func (a *api) receipt(r Receipt, err error) (any, error) {
	return receiptBody{r.Balance.Decimal(), string(r.Balance.Currency()), r.Transfer}, err
}

// requestError is what is wrong with a request itself.
type requestError struct {
	status int
	code   string
	err    error
}

func (e *requestError) Error() string { return e.err.Error() }
func (e *requestError) Unwrap() error { return e.err }

func badRequest(err error) error {
	return &requestError{http.StatusBadRequest, "bank/bad_request", err}
}

// badField names the field to blame. What is wrong with an amount that can be
// read is a refusal.
func badField(field string, err error) error {
	if refusal := refusalOf(err); refusal != nil {
		return fmt.Errorf("%s: %w: %w", field, refusal, err)
	}
	return badRequest(fmt.Errorf("%s: %w", field, err))
}

// answer writes what came of a request.
func (a *api) answer(w http.ResponseWriter, r *http.Request, body any, err error) {
	status := http.StatusOK
	if err != nil {
		failure := errorBody{Code: eventsourcing.Code(err), Message: err.Error()}
		status = statusOf(err)
		if bad, ok := errors.AsType[*requestError](err); ok {
			status, failure.Code = bad.status, bad.code
		}
		if status >= http.StatusInternalServerError {
			a.log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		body = map[string]errorBody{"error": failure}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // or the caller has gone
}

// statusOf maps errors of accounts and of Refold. After 504 the command may have
// been done; the same request ID tells.
func statusOf(err error) int {
	_, refused := errors.AsType[*eventsourcing.Refusal](err)
	switch {
	case errors.Is(err, ErrNotOpen):
		return http.StatusNotFound
	case refused:
		return http.StatusConflict
	case errors.Is(err, eventsourcing.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, eventsourcing.ErrOutcomeUnknown):
		return http.StatusGatewayTimeout
	case errors.Is(err, eventsourcing.ErrStashFull), errors.Is(err, eventsourcing.ErrStopped), errors.Is(err, eventsourcing.ErrConflict):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
