// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refold-io/refold/examples/bank/batch"
	"github.com/refold-io/refold/examples/bank/requests"
)

// lineClients execute the lines of a file on any branch. They execute the lines of one account one
// after the other, and repeat unanswered lines with the same request ID.
type lineClients struct {
	s      *soak
	seed   uint64
	caller *caller
	slots  chan struct{}
	done   chan struct{} // closed when all lines are answered

	mu           sync.Mutex
	acknowledged int
	answers      map[string]int
	again        map[string]int // number of repeated requests by reason
	slowest      time.Duration
}

func newLineClients(s *soak, seed uint64) *lineClients {
	return &lineClients{
		s: s, seed: seed, caller: newCaller(5 * time.Second), slots: make(chan struct{}, 200), done: make(chan struct{}),
		answers: map[string]int{}, again: map[string]int{},
	}
}

// start reads the file and starts the clients.
func (c *lineClients) start() {
	c.s.Helper()
	file, err := os.Open(c.s.lines.file)
	if err != nil {
		c.s.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	byAccount, opened := map[string][]batch.Line{}, map[string]chan struct{}{}
	for line, err := range batch.Read(file) {
		if _, bad := errors.AsType[*batch.LineError](err); bad {
			c.answered("cannot be read", 0) // an invalid line: there is no request to send
			continue
		}
		if err != nil {
			c.s.Fatal(err)
		}
		if line.Command == batch.Open && opened[line.Account] == nil {
			opened[line.Account] = make(chan struct{})
		}
		byAccount[line.Account] = append(byAccount[line.Account], line)
	}
	began, each := time.Now(), c.s.time/time.Duration(c.s.lines.commands)
	var clients sync.WaitGroup
	for i, account := range slices.Sorted(maps.Keys(byAccount)) {
		random := rand.New(rand.NewPCG(c.seed, uint64(1+i)))
		clients.Go(func() {
			isOpen := opened[account] == nil
			for _, line := range byAccount[account] {
				sleep(c.s.Context(), time.Until(began.Add(each*time.Duration(line.Number))))
				if to := opened[line.To]; line.Command == batch.Transfer && to != nil {
					<-to
				}
				c.execute(random, line)
				if line.Command == batch.Open && !isOpen {
					close(opened[account])
					isOpen = true
				}
			}
		})
	}
	go func() {
		clients.Wait()
		close(c.done)
	}()
}

// execute sends the request of a line until it receives a final answer.
func (c *lineClients) execute(random *rand.Rand, line batch.Line) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	path, body := requestOf(line, requests.FileLine(c.s.lines.hash, line.Number))
	began := time.Now()
	pause := 20 * time.Millisecond
	for c.s.Context().Err() == nil {
		if url := c.s.servers.anyProcess(random).at(); url != "" {
			status, answer, err := c.caller.do(c.s.Context(), http.MethodPost, url+path, body)
			if err == nil && status < http.StatusInternalServerError {
				c.answered(fmt.Sprintf("%d %s", status, codeOf(answer)), time.Since(began))
				return
			}
			c.asksAgain(fmt.Sprintf("%d %s", status, codeOf(answer)))
		}
		sleep(c.s.Context(), pause)
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// requestOf returns the API request of a line.
func requestOf(l batch.Line, request string) (path, body string) {
	account := "/accounts/" + l.Account
	amount := map[string]string{"amount": l.Amount.Decimal(), "currency": string(l.Currency), "request_id": request}
	if l.Amount.Currency() != "" {
		amount["currency"] = string(l.Amount.Currency())
	}
	switch l.Command {
	case batch.Open:
		return "/accounts", asJSON(map[string]string{"id": l.Account, "currency": string(l.Currency), "owner": l.To, "request_id": request})
	case batch.Deposit:
		return account + "/deposits", asJSON(amount)
	case batch.Withdraw:
		return account + "/withdrawals", asJSON(amount)
	case batch.Transfer:
		amount["to"] = l.To
		return account + "/transfers", asJSON(amount)
	}
	return account + "/close", asJSON(map[string]string{"request_id": request})
}

func asJSON(fields map[string]string) string {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// codeOf returns the code of an answer that is an error.
func codeOf(answer string) string {
	var body struct {
		Error errorBody `json:"error"`
	}
	_ = json.Unmarshal([]byte(answer), &body)
	return body.Error.Code
}

func (c *lineClients) answered(how string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acknowledged++
	c.answers[how]++
	c.slowest = max(c.slowest, took)
}

func (c *lineClients) asksAgain(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again[why]++
}

// String summarizes the answers.
func (c *lineClients) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("answers %s; asked again after %s; the slowest took %v", tallied(c.answers), tallied(c.again), c.slowest.Round(time.Millisecond))
}

// tallied lists counts.
func tallied(m map[string]int) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s: %d", strings.TrimSpace(key), m[key]))
	}
	return "(" + strings.Join(all, ", ") + ")"
}
