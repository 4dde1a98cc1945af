// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/refold-io/refold/examples/bank/money"
)

// sharedPrefix begins the IDs of the accounts that tellers share.
const sharedPrefix = "shared-"

// tellers are clients that use the same few accounts concurrently, on any branch, and record their
// commands and the replies.
type tellers struct {
	s        *soak
	seed     uint64
	caller   *caller
	accounts []string
	clock    atomic.Int64
	quit     chan struct{}
	work     sync.WaitGroup

	mu       sync.Mutex
	recorded []porcupine.Operation
	requests map[string]bool // by request ID: whether the reply reported success
	open     []*doubt
	looks    int
}

// doubt is an operation that was refused after an earlier attempt without a reply. The earlier
// attempt may have been executed, or may be executed later.
type doubt struct {
	request string
	op      porcupine.Operation
	credit  *porcupine.Operation // the credit of a transfer
}

// teller is one of the clients.
type teller struct {
	*tellers

	number, last int
	random       *rand.Rand
}

func newTellers(s *soak, seed uint64) *tellers {
	t := &tellers{s: s, seed: seed, caller: newCaller(5 * time.Second), quit: make(chan struct{}), requests: map[string]bool{}}
	for i := range s.shared {
		t.accounts = append(t.accounts, fmt.Sprint(sharedPrefix, i))
	}
	return t
}

// start opens the accounts and starts the clients.
func (t *tellers) start() {
	t.s.Helper()
	opener := &teller{tellers: t, random: rand.New(rand.NewPCG(t.seed, 2))}
	for _, id := range t.accounts {
		if status, answer, _ := opener.persist("/accounts", asJSON(map[string]string{"id": id, "currency": "USD", "request_id": "open"})); status != http.StatusOK {
			t.s.Fatalf("open %s: status %d, want %d: %s", id, status, http.StatusOK, answer)
		}
	}
	for i := range t.s.tellers {
		one := &teller{tellers: t, number: 1 + i, random: rand.New(rand.NewPCG(t.seed, uint64(100+i)))}
		t.work.Go(one.run)
	}
}

// stop ends the tellers after their current commands.
func (t *tellers) stop() {
	close(t.quit)
	t.work.Wait()
}

func (t *teller) run() {
	for {
		select {
		case <-t.quit:
			return
		case <-t.s.Context().Done():
			return
		case <-time.After(time.Duration(t.random.IntN(100)) * time.Millisecond):
		}
		op := tellerOp{account: t.accounts[t.random.IntN(len(t.accounts))], amount: 100 * (1 + t.random.Int64N(50))}
		switch n := t.random.IntN(10); {
		case n < 3:
			op.kind = "deposits"
		case n < 5:
			op.kind = "withdrawals"
		case n < 7:
			op.kind = "transfers"
		default:
			t.look(op.account)
			continue
		}
		t.change(op)
	}
}

// change sends a deposit, a withdrawal or a transfer until it receives a reply. After a transfer it
// waits until the transfer has completed.
func (t *teller) change(op tellerOp) {
	t.last++
	request := fmt.Sprintf("teller-%d-%d", t.number, t.last)
	body := map[string]string{"amount": money.New(op.amount, money.USD).Decimal(), "currency": "USD", "request_id": request}
	var to string
	if op.kind == "transfers" {
		others := slices.DeleteFunc(slices.Clone(t.accounts), func(id string) bool { return id == op.account })
		to = others[t.random.IntN(len(others))]
		body["to"] = to
	}
	call := t.clock.Add(1)
	status, answer, attempts := t.persist("/accounts/"+op.account+"/"+op.kind, asJSON(body))
	end := t.clock.Add(1)
	if status == 0 {
		return // the test is over
	}
	var receipt receiptBody
	got := tellerAnswer{}
	switch code := codeOf(answer); {
	case status == http.StatusOK && json.Unmarshal([]byte(answer), &receipt) == nil:
		got.balance = t.minor(receipt.Balance)
	case code == ErrInsufficient.Code():
		got.refused = true
	default:
		t.s.Errorf("%s of %s: unexpected status %d: %s", op.kind, op.account, status, answer)
		return
	}
	operation := porcupine.Operation{ClientId: t.number, Input: op, Call: call, Output: got, Return: end}
	credit := porcupine.Operation{ClientId: 1000 + t.number, Input: tellerOp{account: to, kind: "credit", amount: op.amount}, Call: call, Output: tellerAnswer{}, Return: math.MaxInt64}
	if got.refused && attempts > 1 {
		d := &doubt{request: request, op: operation}
		if to != "" {
			d.credit = &credit
		}
		t.mu.Lock()
		t.open = append(t.open, d)
		t.mu.Unlock()
		return
	}
	t.note(request, operation, !got.refused)
	if to == "" || got.refused {
		return
	}
	// The credit of a transfer precedes the end of the transfer at its source.
	for t.s.Context().Err() == nil {
		view, ok := t.look(op.account)
		if ok && !slices.ContainsFunc(view.Pending, func(p pendingBody) bool { return p.Transfer == receipt.Transfer }) {
			credit.Return = t.clock.Add(1)
			break
		}
		sleep(t.s.Context(), 50*time.Millisecond)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recorded = append(t.recorded, credit)
}

// look looks up an account once, and records the reply, unless it may be outdated (process.replaced).
func (t *teller) look(account string) (view accountBody, ok bool) {
	r := t.s.servers.anyProcess(t.random)
	url := r.at()
	if url == "" {
		return view, false
	}
	call := t.clock.Add(1)
	status, answer, err := t.caller.do(t.s.Context(), http.MethodGet, url+"/accounts/"+account, "")
	end := t.clock.Add(1)
	if err != nil || status >= http.StatusInternalServerError || r.replaced.Load() {
		return view, false
	}
	if status != http.StatusOK || json.Unmarshal([]byte(answer), &view) != nil {
		t.s.Errorf("look up %s: status %d, want %d and an account: %s", account, status, http.StatusOK, answer)
		return view, false
	}
	t.note("", porcupine.Operation{
		ClientId: t.number, Input: tellerOp{account: account, kind: "lookup"}, Call: call, Output: tellerAnswer{balance: t.minor(view.Balance)}, Return: end,
	}, true)
	return view, true
}

// persist posts the same request until it receives a reply, and ignores an outdated refusal
// (process.replaced). The status is 0 if the test ends before that.
func (t *teller) persist(path, body string) (status int, answer string, attempts int) {
	for t.s.Context().Err() == nil {
		r := t.s.servers.anyProcess(t.random)
		if url := r.at(); url != "" {
			attempts++
			status, answer, err := t.caller.do(t.s.Context(), http.MethodPost, url+path, body)
			outdated := r.replaced.Load() && status != http.StatusOK // a refusal stores nothing
			if err == nil && status < http.StatusInternalServerError && !outdated {
				return status, answer, attempts
			}
		}
		sleep(t.s.Context(), 50*time.Millisecond)
	}
	return 0, "", attempts
}

func (t *teller) minor(balance string) int64 {
	amount, err := money.Parse(balance, money.USD)
	if err != nil {
		t.s.Errorf("parse the balance %q: %v", balance, err)
	}
	return amount.Minor()
}

func (t *tellers) note(request string, op porcupine.Operation, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recorded = append(t.recorded, op)
	if request == "" {
		t.looks++
	} else {
		t.requests[request] = done
	}
}

// String summarizes the operations.
func (t *tellers) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d tellers have changed %d shared accounts %d times, and looked %d times", t.s.tellers, len(t.accounts), len(t.requests)+len(t.open), t.looks)
}

// check requires that the journal contains each acknowledged operation once and nothing else, and
// that the operations of each account are linearizable.
func (t *tellers) check(books ledger) {
	t.s.Helper()
	for _, d := range t.open { // the journal has the outcome
		switch n := books.requests[d.request]; n {
		case 0:
			t.requests[d.request] = false
			t.recorded = append(t.recorded, d.op)
		default:
			t.requests[d.request] = true
			d.op.Output, d.op.Return = tellerAnswer{unknown: true}, math.MaxInt64
			t.recorded = append(t.recorded, d.op)
			if d.credit != nil {
				t.recorded = append(t.recorded, *d.credit)
			}
		}
	}
	for _, request := range slices.Sorted(maps.Keys(t.requests)) {
		want := 0
		if t.requests[request] {
			want = 1
		}
		if n := books.requests[request]; n != want {
			t.s.Errorf("request %s is in the journal %d times, want %d", request, n, want)
		}
	}
	t.checkOrder()
}
