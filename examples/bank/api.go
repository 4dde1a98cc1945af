// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"bytes"
	"cmp"
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
	"net/url"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/money"
)

// openAPI describes the HTTP calls.
//
//go:embed openapi.json
var openAPI []byte

const maxBody = 16 << 10

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
	for path, command := range map[string]string{"deposits": batch.Deposit, "withdrawals": batch.Withdraw} {
		mux.HandleFunc("POST /accounts/{id}/"+path, handle(a, func(r *http.Request, b amountRequest) (any, error) {
			return a.execute(r, command, transferRequest{amountRequest: b})
		}))
	}
	mux.HandleFunc("POST /accounts/{id}/transfers", handle(a, func(r *http.Request, b transferRequest) (any, error) {
		return a.execute(r, batch.Transfer, b)
	}))
	mux.HandleFunc("POST /accounts/{id}/close", handle(a, func(r *http.Request, b baseRequest) (any, error) {
		return a.execute(r, batch.Close, transferRequest{amountRequest: amountRequest{baseRequest: b}})
	}))
	mux.HandleFunc("GET /accounts/{id}", a.respond(a.lookup))
	mux.HandleFunc("GET /accounts/{id}/statement", func(w http.ResponseWriter, r *http.Request) {
		answer, err := a.statement(r) // reading a long history takes more than askTimeout
		a.answer(w, r, answer, err)
	})
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

type (
	openRequest struct {
		ID        string `json:"id"`
		Currency  string `json:"currency"`
		Owner     string `json:"owner"`
		RequestID string `json:"request_id"`
	}
	baseRequest struct {
		RequestID string `json:"request_id"`
	}
	amountRequest struct {
		baseRequest
		Amount   string `json:"amount"`
		Currency string `json:"currency"`
	}
	transferRequest struct {
		amountRequest
		To string `json:"to"`
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

func (a *api) execute(r *http.Request, command string, body transferRequest) (any, error) {
	line := batch.Line{Command: command, Account: r.PathValue("id"), To: body.To}
	if command != batch.Close {
		var err error
		if line.Currency, err = money.ParseCurrency(body.Currency); err != nil {
			return nil, badField("currency", err)
		}
		if line.Amount, err = money.Parse(body.Amount, line.Currency); err != nil {
			return nil, badField("amount", err)
		}
	}
	receipt, err := a.bank.execute(r.Context(), line, body.RequestID)
	return receiptBody{receipt.Balance.Decimal(), string(receipt.Balance.Currency()), receipt.Transfer}, err
}

// lookup asks the account, or replays the journal if the request names a past state.
func (a *api) lookup(r *http.Request) (any, error) {
	ctx, q := r.Context(), r.URL.Query()
	id := r.PathValue("id")
	in, err := parseIn(q.Get("in"))
	if err != nil {
		return nil, badField("in", err)
	}
	if !q.Has("at_seq") && !q.Has("at_time") && !q.Has("without") {
		view, failed := eventsourcing.Ask(ctx, a.bank.account(id), Lookup{In: in})
		return accountJSON(id, view, 0), failed
	}
	atSeq, err := eventNumber("at_seq", q.Get("at_seq"))
	if err == nil && q.Get("at_seq") != "" && atSeq == 0 {
		err = badField("at_seq", errors.New("0 is not an event number"))
	}
	var atTime moment
	if err == nil {
		err = parseTime(q, "at_time", &atTime)
	}
	if err != nil {
		return nil, err
	}
	var without []uint64
	for _, s := range q["without"] {
		n, bad := eventNumber("without", s)
		if bad != nil {
			return nil, bad
		}
		without = append(without, n)
	}
	seen, err := a.bank.lookup(ctx, id, pastOf(atSeq, atTime.Time, without), in)
	return accountJSON(id, seen.view, seen.number), err
}

// page is the number of statement lines in a response.
const page = 1000

var errPageFull = errors.New("the page is full")

func (a *api) statement(r *http.Request) (any, error) {
	var from beginning
	var to moment
	q := r.URL.Query()
	after, err := eventNumber("after", q.Get("after"))
	if err = cmp.Or(parseTime(q, "from", &from), parseTime(q, "to", &to), err); err != nil {
		return nil, err
	}
	body := statementBody{Account: r.PathValue("id"), Lines: []lineBody{}}
	err = a.bank.statement(r.Context(), body.Account, from.Time, to.Time, func(l statementLine) error {
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

// parseTime parses a parameter of a query, if it is present.
func parseTime(q url.Values, name string, into encoding.TextUnmarshaler) error {
	if s := q.Get(name); s != "" {
		if err := into.UnmarshalText([]byte(s)); err != nil {
			return badField(name, err)
		}
	}
	return nil
}

// eventNumber parses a parameter of a query. It returns 0 if the parameter is missing.
func eventNumber(name, s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, badField(name, fmt.Errorf("%.40q is not an event number", s))
	}
	return n, nil
}

func handle[T any](a *api, f func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.respond(func(r *http.Request) (any, error) {
			body, err := decode[T](w, r)
			if err != nil {
				return nil, err
			}
			return f(r, body)
		})(w, r)
	}
}

func (a *api) respond(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		answer, err := f(r.WithContext(ctx))
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

// The response bodies. Amounts are strings, so that clients do not convert them to floating point.
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
			failure.Message = http.StatusText(status) + "; the log of the bank (-v) has the reason"
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
	switch status := eventsourcing.StatusOf(err).HTTP; status {
	case http.StatusUnprocessableEntity: // a refusal
		return http.StatusConflict
	case http.StatusTooManyRequests:
		return http.StatusServiceUnavailable
	default:
		return status
	}
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
