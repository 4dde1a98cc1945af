// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package deploytest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/testkit/effort"
)

// Three processes run with the arguments, the environment and the probes of the manifests, on NATS
// with TLS and a user for each node. While clients send commands through the Service, a rolling update
// replaces all processes, and a second one in make soak. No command fails, and the audit finds each
// command that was answered, once. The test runs alone: a node without processor time for some seconds
// appears dead.
func TestRollingRestart(t *testing.T) {
	rate, updates := 200, 1
	if effort.Soak() {
		rate, updates = 2000, 2
	}
	opts := natsOptions(t)
	authority, tlsConfig := certificates(t)
	opts.TLS, opts.TLSConfig, opts.TLSTimeout = true, tlsConfig, 60
	config, password := database(t)
	config["REFOLD_NATS"] = "tls://" + startNATS(t, opts)
	credentials := map[string]string{"ca.crt": authority}
	for _, user := range opts.Users {
		credentials[user.Username] = user.Username + ":" + user.Password
	}
	p := newPlatform(t, buildBank(t), config, map[string]map[string]string{
		"bank-nats": credentials, "bank-postgres": {"password": password, "ca.crt": authority},
	})
	for i := range p.pods {
		p.start(i)
	}
	for _, one := range p.pods {
		one.awaitReady(0)
		t.Logf("%s is ready after %v", one.name, time.Since(one.begun).Round(100*time.Millisecond))
	}

	l := &load{platform: p, rate: rate, accounts: 1000}
	l.open()
	l.start()
	for range updates {
		p.roll()
	}
	l.stop()
	l.report()

	audit := p.audit()
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(audit, " 0 in flight, 0 arrived") && time.Now().Before(deadline); {
		audit = p.audit()
	}
	var ending sync.WaitGroup
	for _, one := range p.pods {
		ending.Go(one.terminate)
	}
	ending.Wait()
	audit = p.audit()
	t.Logf("bank audit\n%s", audit)
	l.check(audit)
}

// audit runs the audit of the bank.
func (p *platform) audit() string {
	p.Helper()
	audit := exec.CommandContext(p.Context(), p.program, "audit", "--journal=postgres:")
	for name, value := range p.pods[0].environment(container(p.manifests)) {
		audit.Env = append(audit.Env, name+"="+value)
	}
	out, err := audit.CombinedOutput()
	if err != nil {
		p.Fatalf("bank audit: %v\n%s", err, out)
	}
	return string(out)
}

// opening is the first deposit of each account, in cents.
const opening = 100_000

// load sends commands through the Service at a rate, whether or not earlier ones were answered. It
// repeats none.
type load struct {
	*platform

	rate, accounts int
	quit, ended    chan struct{}
	begun          time.Time
	sent           int
	took           time.Duration

	mu        sync.Mutex
	failed    map[string]int
	deposits  int
	transfers int
	latencies []time.Duration
}

// maxPending bounds the number of commands that wait for their replies. A command beyond that fails.
const maxPending = 10_000

func (l *load) open() {
	l.Helper()
	var clients sync.WaitGroup
	next := make(chan int)
	for range 16 {
		clients.Go(func() {
			for i := range next {
				if err := errors.Join(
					l.post("/accounts", map[string]string{"id": account(i), "currency": "USD", "owner": "owner", "request_id": "open"}),
					l.post("/accounts/"+account(i)+"/deposits", map[string]string{"amount": cents(opening), "currency": "USD", "request_id": "first"}),
				); err != nil {
					l.Errorf("open %s: %v", account(i), err)
				}
			}
		})
	}
	for i := range l.accounts {
		next <- i
	}
	close(next)
	clients.Wait()
	if l.Failed() {
		l.FailNow()
	}
}

func account(i int) string { return fmt.Sprintf("a%04d", i) }

func cents(n int) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// post sends a command once.
func (l *load) post(path string, body map[string]string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+l.service().Name+path, strings.NewReader(string(data)))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := l.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return err
}

func (l *load) start() {
	l.quit, l.ended, l.failed, l.begun = make(chan struct{}), make(chan struct{}), map[string]int{}, time.Now()
	pending := make(chan struct{}, maxPending)
	go func() {
		defer close(l.ended)
		var commands sync.WaitGroup
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-tick.C:
			case <-l.quit:
				over = true
			}
			for due := int(time.Since(l.begun).Seconds() * float64(l.rate)); l.sent < due; l.sent++ {
				n := l.sent
				select {
				case pending <- struct{}{}:
					commands.Go(func() {
						l.command(n)
						<-pending
					})
				default:
					l.note(n, 0, fmt.Errorf("%d commands wait for replies", maxPending))
				}
			}
		}
		l.took = time.Since(l.begun)
		commands.Wait()
	}()
}

// command sends the command with a number: one of ten is a transfer, the others are deposits.
func (l *load) command(n int) {
	from := rand.IntN(l.accounts)
	path, body := "/deposits", map[string]string{"amount": "0.01", "currency": "USD", "request_id": "load-" + itoa(n)}
	if n%10 == 0 {
		path = "/transfers"
		body["to"] = account((from + 1 + rand.IntN(l.accounts-1)) % l.accounts)
	}
	begun := time.Now()
	err := l.post("/accounts/"+account(from)+path, body)
	l.note(n, time.Since(begun), err)
}

var digits = regexp.MustCompile(`\d+`)

func (l *load) note(n int, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		kind := digits.ReplaceAllString(err.Error(), "0")
		if l.failed[kind]++; l.failed[kind] <= 3 {
			l.Logf("%s command %d failed after %v: %v", time.Now().Format(time.TimeOnly+".000"), n, took, err)
		}
		return
	case n%10 == 0:
		l.transfers++
	default:
		l.deposits++
	}
	l.latencies = append(l.latencies, took)
}

// stop ends the load after the replies to all commands.
func (l *load) stop() {
	close(l.quit)
	<-l.ended
}

// report requires that no command has failed.
func (l *load) report() {
	l.Helper()
	slices.Sort(l.latencies)
	n := len(l.latencies)
	if n == 0 {
		l.Fatalf("all commands failed: %v", l.failed)
	}
	l.Logf("%d commands in %v, %.0f a second; %d deposits and %d transfers were answered; latency: median %v, 99%% %v, 99.9%% %v, maximum %v",
		l.sent, l.took.Round(time.Second), float64(l.sent)/l.took.Seconds(), l.deposits, l.transfers,
		round(l.latencies[n/2]), round(l.latencies[n*99/100]), round(l.latencies[n*999/1000]), round(l.latencies[n-1]))
	total := 0
	for _, times := range l.failed {
		total += times
	}
	if total > 0 {
		l.Errorf("%d commands failed, want 0: %v", total, l.failed)
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// check requires that the audit is OK and has counted each command that was answered, and no other.
func (l *load) check(audit string) {
	l.Helper()
	if !strings.HasSuffix(audit, "\nOK\n") {
		l.Error("the audit is not OK")
	}
	plain := strings.ReplaceAll(audit, ",", "")
	want := regexp.MustCompile(fmt.Sprintf(`(?m)^ *USD +%s +`, regexp.QuoteMeta(cents(l.accounts*opening+l.deposits))))
	if !want.MatchString(plain) {
		l.Errorf("the audit does not have deposits of %s USD", cents(l.accounts*opening+l.deposits))
	}
	if text := fmt.Sprintf("transfers: 0 in flight 0 arrived and not yet confirmed %d completed 0 refunded", l.transfers); !strings.Contains(plain, text) {
		l.Errorf("the audit does not have the %s", text)
	}
}
