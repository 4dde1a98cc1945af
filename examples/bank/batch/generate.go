// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/refold-io/refold/examples/bank/money"
)

// Plan configures Generate.
type Plan struct {
	// Accounts is the number of accounts. Required.
	Accounts int
	// Commands is the number of lines without the header. The first lines open the accounts.
	// Required.
	Commands int
	// Seed is the random seed. Equal plans give equal files.
	Seed uint64
	// Confluent excludes commands whose outcome depends on the order in which transfers arrive. An
	// account then spends only money from its own deposits, in its own currency, and an account
	// that is closed takes part in no transfer. Defaults to false.
	Confluent bool
}

// Generate writes a file of random commands. Some accounts are busier than others, and about one
// command in a hundred is a mistake.
func Generate(w io.Writer, p Plan) error {
	switch {
	case p.Accounts < 1:
		return errors.New("generate: at least 1 account is needed")
	case p.Commands < p.Accounts:
		return fmt.Errorf("generate: %d commands are not enough to open %d accounts", p.Commands, p.Accounts)
	}
	g := &generator{
		plan: p,
		rand: rand.New(rand.NewPCG(p.Seed, 0x62616e6b)), //nolint:gosec // a reproducible file, no secret
		out:  bufio.NewWriter(w),
	}
	g.printf("%s\n", Header)
	for i := range p.Accounts {
		g.open(i)
	}
	for g.lines < p.Commands {
		g.next()
	}
	if err := g.out.Flush(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

type generator struct {
	plan     Plan
	rand     *rand.Rand
	out      *bufio.Writer
	lines    int
	accounts []customer
}

type customer struct {
	id       string
	currency money.Currency
	funds    int64 // minimum balance, in minor units
	quiet    bool  // takes part in no transfer, and may close
	closed   bool
}

func (g *generator) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(g.out, format, args...) // Flush returns the error
}

func (g *generator) line(command, account, amount string, c money.Currency, to string) {
	g.lines++
	g.printf("%d,%s,%s,%s,%s,%s\n", g.lines, command, account, amount, c, to)
}

func (g *generator) open(i int) {
	c := customer{id: fmt.Sprintf("a%05d", i+1), currency: money.TWD, quiet: i%50 == 49}
	if g.rand.IntN(100) < 40 {
		c.currency = money.USD
	}
	g.accounts = append(g.accounts, c)
	g.line(Open, c.id, "", c.currency, g.owner())
}

func (g *generator) next() {
	c := g.customer()
	switch n := g.rand.IntN(100); {
	case n == 0:
		g.mistake(c)
	case c.quiet:
		g.quiet(c)
	case n < 35:
		g.deposit(c)
	case n < 60:
		g.withdraw(c)
	default:
		g.transfer(c)
	}
}

// customer picks a customer; a fifth of them issues half of the commands.
func (g *generator) customer() *customer {
	n := len(g.accounts)
	if g.rand.IntN(2) == 0 {
		n = (n + 4) / 5
	}
	c := &g.accounts[g.rand.IntN(n)]
	if c.closed && g.rand.IntN(20) > 0 {
		return g.customer()
	}
	return c
}

func (g *generator) deposit(c *customer) {
	currency := c.currency
	if g.rand.IntN(5) == 0 {
		currency = other(c.currency)
	}
	minor := g.sum(currency)
	if currency == c.currency {
		c.funds += minor
	}
	g.line(Deposit, c.id, decimal(minor), currency, "")
}

func (g *generator) withdraw(c *customer) {
	if minor, currency, ok := g.payment(c); ok {
		g.line(Withdraw, c.id, decimal(minor), currency, "")
		return
	}
	g.deposit(c)
}

func (g *generator) transfer(c *customer) {
	to := &g.accounts[g.rand.IntN(len(g.accounts))]
	if to.id == c.id || to.quiet {
		g.deposit(c)
		return
	}
	minor, currency, ok := g.payment(c)
	if !ok {
		g.deposit(c)
		return
	}
	name := to.id
	if g.rand.IntN(200) == 0 {
		name = "nobody-" + strconv.Itoa(g.rand.IntN(20)) // unknown account: the transfer is refunded
	}
	g.line(Transfer, c.id, decimal(minor), currency, name)
}

// payment returns an amount for a customer, and whether the customer can pay it.
func (g *generator) payment(c *customer) (int64, money.Currency, bool) {
	if !g.plan.Confluent && g.rand.IntN(4) == 0 {
		currency := c.currency
		if g.rand.IntN(2) == 0 {
			currency = other(currency)
		}
		return g.sum(currency), currency, true // the account may refuse the payment
	}
	minor := g.sum(c.currency)
	if minor > c.funds {
		minor = c.funds / 2
	}
	c.funds -= minor
	return minor, c.currency, minor > 0
}

// quiet writes a command of a customer that deposits, withdraws everything and closes.
func (g *generator) quiet(c *customer) {
	switch {
	case c.closed || c.funds == 0:
		minor := g.sum(c.currency)
		if !c.closed {
			c.funds += minor
		}
		g.line(Deposit, c.id, decimal(minor), c.currency, "")
	case g.rand.IntN(3) > 0:
		g.line(Withdraw, c.id, decimal(c.funds), c.currency, "")
		c.funds = 0
		if g.lines < g.plan.Commands && g.rand.IntN(4) == 0 {
			c.closed = true
			g.line(Close, c.id, "", "", "")
		}
	default:
		g.line(Close, c.id, "", "", "") // refused: the balance is not zero
	}
}

// mistake writes a command that is always refused.
func (g *generator) mistake(c *customer) {
	switch g.rand.IntN(6) {
	case 0:
		g.line(Deposit, c.id, "-5.00", c.currency, "")
	case 1:
		g.line(Withdraw, c.id, "0.00", c.currency, "")
	case 2:
		g.line(Transfer, c.id, decimal(g.sum(c.currency)), c.currency, c.id)
	case 3:
		g.line(Withdraw, c.id, "90000000000000.00", c.currency, "")
	case 4:
		g.line(Deposit, "nobody-"+strconv.Itoa(g.rand.IntN(20)), decimal(g.sum(c.currency)), c.currency, "")
	case 5:
		g.line(Open, c.id, "", other(c.currency), "Somebody Else")
	}
}

// sum returns a random amount: many are small, few are large.
func (g *generator) sum(c money.Currency) int64 {
	minor := 100 + g.rand.Int64N(1+g.rand.Int64N(100_000))
	if c == money.TWD {
		minor *= 30
	}
	return minor
}

func (g *generator) owner() string {
	first := [...]string{"Mei", "Wei", "Ana", "Tom", "Yuki", "Omar", "Lena", "Ravi", "Ines", "Hugo"}
	last := [...]string{"Chen", "Lin", "Silva", "Smith", "Sato", "Haddad", "Berg", "Rao", "Costa", "Weiss"}
	return first[g.rand.IntN(len(first))] + " " + last[g.rand.IntN(len(last))]
}

func other(c money.Currency) money.Currency {
	if c == money.USD {
		return money.TWD
	}
	return money.USD
}

func decimal(minor int64) string { return money.New(minor, "").Decimal() }
