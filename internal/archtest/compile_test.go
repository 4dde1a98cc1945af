// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/testkit/exportdata"
)

// correctProgram is the correct program that each mistake below changes in one place.
const correctProgram = `package p

import (
	"context"

	"github.com/refold-io/refold/eventsourcing"
)

type (
	deposit struct {
		eventsourcing.Command[account, int]
	}
	audit struct{ eventsourcing.Command[account, string] }
	tick struct{ eventsourcing.Notice[account] }
	ship struct{ eventsourcing.Command[cart, int] }
	event interface{ isEvent() }
	deposited struct{}
	foreign struct{}
	account struct{ balance int }
	cart struct{}

	Context[R any]  = eventsourcing.Context[account, event, R]
	Effect[R any]   = eventsourcing.Effect[account, event, R]
	Decision[R any] = eventsourcing.Decision[account, event, R]
)

func (deposited) isEvent() {}

func (a *account) deposit(ctx *Context[int], c deposit) Decision[int] {
	return ctx.Persist(deposited{}).Reply(a.balance)
}

func (a *account) tick(ctx *Context[eventsourcing.None], c tick) Effect[eventsourcing.None] {
	return ctx.Persist(deposited{})
}

func (a *account) late(ctx *Context[eventsourcing.None], s eventsourcing.StateTimeout) Effect[eventsourcing.None] {
	return ctx.Effect
}

func (c *cart) ship(ctx *eventsourcing.Context[cart, event, int], m ship) eventsourcing.Decision[cart, event, int] {
	return ctx.Reply(1)
}

func (a *account) apply(event) {}

var accountType = eventsourcing.Type[account, event]{
	Name:     "account",
	Commands: eventsourcing.Commands(eventsourcing.On("deposit", (*account).deposit), eventsourcing.OnNotice("tick", (*account).tick)),
	Signals:  eventsourcing.Signals(eventsourcing.OnSignal((*account).late)),
	Apply:    (*account).apply,
}

var balance int

func run(ctx context.Context, rt *eventsourcing.Runtime) {
	accounts, _ := eventsourcing.Host(rt, accountType)
	balance, _ = eventsourcing.Ask(ctx, accounts.Ref("1"), deposit{})
	_ = eventsourcing.Tell(ctx, accounts.Ref("1"), tick{})
}
`

// TestMistakesDoNotCompile checks that the compiler rejects the usual mistakes.
func TestMistakesDoNotCompile(t *testing.T) {
	t.Parallel()
	imports := exportdata.Importer(t, "github.com/refold-io/refold/eventsourcing")
	if err := typeCheck(t, imports, correctProgram); err != nil {
		t.Fatalf("the correct program does not compile: %v", err)
	}
	for name, change := range map[string][2]string{
		"a command of another entity is asked":  {`Ref("1"), deposit{})`, `Ref("1"), ship{})`},
		"a notice is asked":                     {`Ref("1"), deposit{})`, `Ref("1"), tick{})`},
		"a message of another entity is sent":   {`Ref("1"), tick{})`, `Ref("1"), ship{})`},
		"the reply is used as another type":     {`var balance int`, `var balance string`},
		"a handler without a reply":             {`return ctx.Persist(deposited{}).Reply(a.balance)`, `return ctx.Persist(deposited{})`},
		"a reply of another type":               {`.Reply(a.balance)`, `.Reply("text")`},
		"a reply func of another type":          {`.Reply(a.balance)`, `.ReplyFunc(func() string { return "" })`},
		"a handler for another reply":           {`c deposit) Decision`, `c audit) Decision`},
		"a handler of another entity's command": {`c deposit) Decision`, `c ship) Decision`},
		"a table of another entity":             {`eventsourcing.OnNotice("tick", (*account).tick)`, `eventsourcing.On("ship", (*cart).ship)`},
		"a foreign event":                       {`ctx.Persist(deposited{}).Reply`, `ctx.Persist(foreign{}).Reply`},
		"an unknown signal":                     {`s eventsourcing.StateTimeout)`, `s deposited)`},
		"a reply to a notice":                   {"c tick) Effect[eventsourcing.None] {\n\treturn ctx.Persist(deposited{})", "c tick) Effect[eventsourcing.None] {\n\treturn ctx.Reply(eventsourcing.None{})"},
		"a misspelt method":                     {`(*account).apply,`, `(*account).aply,`},
	} {
		if !strings.Contains(correctProgram, change[0]) {
			t.Errorf("%s: the correct program does not contain the text to replace, %q", name, change[0])
		}
		if err := typeCheck(t, imports, strings.Replace(correctProgram, change[0], change[1], 1)); err == nil {
			t.Errorf("%s: the program compiles, want a compiler error", name)
		}
	}
}

// typeCheck type-checks a source file.
func typeCheck(t *testing.T, imports types.Importer, source string) error {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&types.Config{Importer: imports}).Check("p", files, []*ast.File{file}, nil)
	return err
}
