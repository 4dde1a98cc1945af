// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/money"
)

// openAPI describes the HTTP calls.
//
//go:embed openapi.json
var openAPI []byte

// maxBody bounds a request body, in bytes.
const maxBody = 16 << 10

// api serves the HTTP API.
type api struct {
	bank *bank
	log  *slog.Logger
}

func newAPI(b *bank, log *slog.Logger) http.Handler {
	a := &api{bank: b, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.home)
	mux.HandleFunc("GET /openapi.json", a.describe)
	mux.HandleFunc("POST /accounts", handle(a, a.open))
	mux.HandleFunc("POST /accounts/{id}/deposits", handle(a, a.deposit))
	mux.HandleFunc("POST /accounts/{id}/withdrawals", handle(a, a.withdraw))
	mux.HandleFunc("POST /accounts/{id}/transfers", handle(a, a.transfer))
	mux.HandleFunc("POST /accounts/{id}/close", handle(a, a.close))
	mux.HandleFunc("GET /accounts/{id}", a.lookup)
	mux.HandleFunc("GET /accounts/{id}/statement", a.statement)
	return http.NewCrossOriginProtection().Handler(mux)
}

func (a *api) home(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	greet(w, "http://"+r.Host)
}

func (a *api) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI) // an error means that the client is gone
}

// The request bodies.
type (
	openRequest struct {
		ID        string `json:"id"`
		Currency  string `json:"currency"`
		Owner     string `json:"owner"`
		RequestID string `json:"request_id"`
	}
	amountRequest struct {
		Amount    string `json:"amount"`
		Currency  string `json:"currency"`
		RequestID string `json:"request_id"`
	}
	transferRequest struct {
		To        string `json:"to"`
		Amount    string `json:"amount"`
		Currency  string `json:"currency"`
		RequestID string `json:"request_id"`
	}
	closeRequest struct {
		RequestID string `json:"request_id"`
	}
)

func (a *api) open(r *http.Request, body openRequest) (any, error) {
	currency, err := money.ParseCurrency(body.Currency)
	if err != nil {
		return nil, badField("currency", err)
	}
	if body.ID == "" {
		return nil, badField("id", errors.New("missing"))
	}
	view, err := eventsourcing.Ask(r.Context(), a.bank.account(body.ID), Open{Request: body.RequestID, Currency: currency, Owner: body.Owner})
	return accountJSON(body.ID, view, 0), err
}

func (a *api) deposit(r *http.Request, body amountRequest) (any, error) {
	amount, err := parseAmount(body.Amount, body.Currency)
	if err != nil {
		return nil, err
	}
	return a.receipt(eventsourcing.Ask(r.Context(), a.bank.account(r.PathValue("id")), Deposit{Request: body.RequestID, Amount: amount}))
}

func (a *api) withdraw(r *http.Request, body amountRequest) (any, error) {
	amount, err := parseAmount(body.Amount, body.Currency)
	if err != nil {
		return nil, err
	}
	return a.receipt(eventsourcing.Ask(r.Context(), a.bank.account(r.PathValue("id")), Withdraw{Request: body.RequestID, Amount: amount}))
}

func (a *api) transfer(r *http.Request, body transferRequest) (any, error) {
	amount, err := parseAmount(body.Amount, body.Currency)
	if err != nil {
		return nil, err
	}
	return a.receipt(eventsourcing.Ask(r.Context(), a.bank.account(r.PathValue("id")), Transfer{Request: body.RequestID, Amount: amount, To: body.To}))
}

func (a *api) close(r *http.Request, body closeRequest) (any, error) {
	return a.receipt(eventsourcing.Ask(r.Context(), a.bank.account(r.PathValue("id")), Close{Request: body.RequestID}))
}

func parseAmount(amount, currency string) (money.Amount, error) {
	c, err := money.ParseCurrency(currency)
	if err != nil {
		return money.Amount{}, badField("currency", err)
	}
	parsed, err := money.Parse(amount, c)
	if err != nil {
		return money.Amount{}, badField("amount", err)
	}
	return parsed, nil
}

func (a *api) lookup(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	answer, err := a.lookupOf(ctx, r)
	a.answer(w, r, answer, err)
}

// lookupOf asks the account, or reads the journal if the request is about a past state.
func (a *api) lookupOf(ctx context.Context, r *http.Request) (any, error) {
	q := r.URL.Query()
	id, in := r.PathValue("id"), money.Currency(q.Get("in"))
	if !q.Has("at_seq") && !q.Has("at_time") && !q.Has("without") {
		view, err := eventsourcing.Ask(ctx, a.bank.account(id), Lookup{In: in})
		return accountJSON(id, view, 0), err
	}
	var atSeq uint64
	var atTime moment
	var without []uint64
	var err error
	if s := q.Get("at_seq"); s != "" {
		if atSeq, err = strconv.ParseUint(s, 10, 63); err != nil || atSeq == 0 {
			return nil, badField("at_seq", fmt.Errorf("%.40q is not an event number", s))
		}
	}
	if s := q.Get("at_time"); s != "" {
		if err = atTime.UnmarshalText([]byte(s)); err != nil {
			return nil, badField("at_time", err)
		}
	}
	for _, s := range q["without"] {
		var n uint64
		if n, err = strconv.ParseUint(s, 10, 63); err != nil {
			return nil, badField("without", fmt.Errorf("%.40q is not an event number", s))
		}
		without = append(without, n)
	}
	seen, err := a.bank.lookup(ctx, id, pastOf(atSeq, atTime.Time, without), in)
	return accountJSON(id, seen.view, seen.number), err
}

// page is the number of statement lines in a response.
const page = 1000

var errPageFull = errors.New("the page is full")

func (a *api) statement(w http.ResponseWriter, r *http.Request) {
	answer, err := a.statementOf(r)
	a.answer(w, r, answer, err)
}

func (a *api) statementOf(r *http.Request) (any, error) {
	var from beginning
	var to moment
	var after uint64
	q := r.URL.Query()
	for _, field := range []struct {
		name string
		into encoding.TextUnmarshaler
	}{{"from", &from}, {"to", &to}} {
		if s := q.Get(field.name); s != "" {
			if err := field.into.UnmarshalText([]byte(s)); err != nil {
				return nil, badField(field.name, err)
			}
		}
	}
	if s := q.Get("after"); s != "" {
		var err error
		if after, err = strconv.ParseUint(s, 10, 63); err != nil {
			return nil, badField("after", fmt.Errorf("%.40q is not an event number", s))
		}
	}
	body := statementBody{Account: r.PathValue("id"), Lines: []lineBody{}}
	err := a.bank.statement(r.Context(), body.Account, from.Time, to.Time, func(l statementLine) error {
		switch {
		case l.Number <= after:
			return nil
		case len(body.Lines) == page:
			body.Next = body.Lines[page-1].Number
			return errPageFull
		}
		body.Lines = append(body.Lines, lineBody{l.Number, l.Time, l.Event, l.Change.Decimal(), l.Balance.Decimal(), string(l.Balance.Currency()), l.Details})
		return nil
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return body, err
}

// handle decodes the JSON body of a request and calls f.
func handle[T any](a *api, f func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := decode[T](w, r)
		if err != nil {
			a.answer(w, r, nil, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		answer, err := f(r.WithContext(ctx), body)
		a.answer(w, r, answer, err)
	}
}

func decode[T any](w http.ResponseWriter, r *http.Request) (body T, err error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return body, &requestError{http.StatusUnsupportedMediaType, "bank/media_type", errors.New("the Content-Type must be application/json")}
	}
	var data []byte
	data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return body, &requestError{http.StatusRequestEntityTooLarge, "bank/too_large", fmt.Errorf("the body is larger than %d bytes", maxBody)}
	}
	if err != nil {
		return body, badRequest(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return body, badRequest(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return body, badRequest(errors.New("more than one JSON value"))
	}
	if err := checkText(data); err != nil {
		return body, badRequest(err)
	}
	return body, nil
}

// The response bodies. Amounts are strings, so that no client converts them to binary floating
// point.
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

// requestError reports an invalid request.
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

// badField names the invalid field. An invalid amount that can be parsed is a refusal.
func badField(field string, err error) error {
	if refusal := refusalOf(err); refusal != nil {
		return fmt.Errorf("%s: %w: %w", field, refusal, err)
	}
	return badRequest(fmt.Errorf("%s: %w", field, err))
}

// answer writes the response.
func (a *api) answer(w http.ResponseWriter, r *http.Request, body any, err error) {
	status := http.StatusOK
	if err != nil {
		failure := errorBody{Code: eventsourcing.StatusOf(err).Code, Message: err.Error()}
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
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}

// statusOf returns the HTTP status of an error. After status 504 the command may have been
// executed; retrying with the same request ID returns the outcome.
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

var errText = errors.New("a string is not valid Unicode: it contains invalid UTF-8 or half of a surrogate pair")

// checkText returns an error if a string in valid JSON is not valid Unicode. The parser would
// replace invalid parts with U+FFFD, and two IDs that differ only there would become the same
// account.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		return errText
	}
	for len(data) > 0 {
		n := 1
		if data[0] == '\\' { // JSON has no backslash outside of strings
			n = 2
			if r := escaped(data); utf16.IsSurrogate(r) {
				n = 12
				if utf16.DecodeRune(r, escaped(data[6:])) == utf8.RuneError {
					return errText
				}
			}
		}
		data = data[n:]
	}
	return nil
}

// escaped returns the UTF-16 unit of a \u escape at the start of data, or 0 if there is none.
func escaped(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(unit)
}
