// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// tellerOp is a command of a teller to an account, or the credit of a transfer.
type tellerOp struct {
	account, kind string
	amount        int64
}

// tellerAnswer is the reply: the balance after the command, or a refusal. An operation with an
// unknown reply was executed at some time.
type tellerAnswer struct {
	refused, unknown bool
	balance          int64
}

// accountModel is the model of one account: a balance that is never negative.
func accountModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			var parts [][]porcupine.Operation
			index := map[string]int{}
			for _, o := range all {
				id := o.Input.(tellerOp).account //nolint:errcheck,forcetypeassert // always one
				if _, known := index[id]; !known {
					index[id] = len(parts)
					parts = append(parts, nil)
				}
				parts[index[id]] = append(parts[index[id]], o)
			}
			return parts
		},
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			balance, op, got := state.(int64), input.(tellerOp), output.(tellerAnswer) //nolint:errcheck,forcetypeassert // always these
			after := balance
			switch op.kind {
			case "lookup":
				return got.balance == balance, balance
			case "credit":
				return true, balance + op.amount
			case "deposits":
				after += op.amount
			default:
				after -= op.amount
			}
			switch {
			case got.refused:
				return after < 0, balance
			case got.unknown:
				return after >= 0, after
			}
			return after >= 0 && got.balance == after, after
		},
	}
}

// checkOrder requires that the recorded operations are linearizable.
func (t *tellers) checkOrder() {
	t.s.Helper()
	const limit = 2 * time.Minute
	model := accountModel()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, t.recorded, limit)
	switch result {
	case porcupine.Ok:
		t.s.Logf("%d operations on %d accounts are linearizable, found in %v", len(t.recorded), len(t.accounts), time.Since(began).Round(time.Millisecond))
	case porcupine.Illegal:
		t.s.Errorf("the operations are not linearizable: no order explains their replies\n%s", unexplained(model.Partition(t.recorded), info))
	case porcupine.Unknown:
		t.s.Errorf("timed out after %s: checking whether %d operations are linearizable", limit, len(t.recorded))
	}
}

// unexplained describes for each account the operations without a valid order.
func unexplained(parts [][]porcupine.Operation, info porcupine.LinearizationInfo) string {
	var b strings.Builder
	for p, orders := range info.PartialLinearizationsOperations() {
		if len(orders) == 0 {
			continue
		}
		best := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
		if len(best) == len(parts[p]) {
			continue
		}
		fmt.Fprintf(&b, "%d of %d operations can be put in order, of which the last:\n", len(best), len(parts[p]))
		for _, o := range best[max(0, len(best)-12):] {
			fmt.Fprintf(&b, "\t%d to %d: %+v -> %+v\n", o.Call, o.Return, o.Input, o.Output)
		}
		b.WriteString("and some of the others:\n")
		left := slices.DeleteFunc(slices.Clone(parts[p]), func(o porcupine.Operation) bool { return slices.Contains(best, o) })
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, o := range left[:min(12, len(left))] {
			fmt.Fprintf(&b, "\t%d to %d: %+v -> %+v\n", o.Call, o.Return, o.Input, o.Output)
		}
	}
	return b.String()
}

// The model accepts valid histories and rejects all others.
func TestAccountModel(t *testing.T) {
	t.Parallel()
	op := func(kind string, amount, call, end, balance int64) porcupine.Operation {
		return porcupine.Operation{
			ClientId: int(call), Input: tellerOp{"x", kind, amount}, Call: call, Output: tellerAnswer{balance: balance}, Return: end,
		}
	}
	refused := func(kind string, amount, call, end int64) porcupine.Operation {
		o := op(kind, amount, call, end, 0)
		o.Output = tellerAnswer{refused: true}
		return o
	}
	deposit := op("deposits", 5, 1, 2, 5)
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"one after the other":      {[]porcupine.Operation{deposit, op("withdrawals", 2, 3, 4, 3), op("lookup", 0, 5, 6, 3)}, true},
		"a lost deposit":           {[]porcupine.Operation{deposit, op("lookup", 0, 3, 4, 0)}, false},
		"a stale lookup":           {[]porcupine.Operation{deposit, op("transfers", 2, 3, 4, 3), op("lookup", 0, 5, 6, 5)}, false},
		"a concurrent lookup":      {[]porcupine.Operation{deposit, op("transfers", 2, 3, 6, 3), op("lookup", 0, 4, 5, 5)}, true},
		"a deposit executed twice": {[]porcupine.Operation{deposit, op("deposits", 5, 3, 4, 15)}, false},
		"a late credit":            {[]porcupine.Operation{deposit, op("credit", 4, 1, 9, 0), op("lookup", 0, 3, 4, 5), op("lookup", 0, 5, 6, 9)}, true},
		"a credit that disappears": {[]porcupine.Operation{deposit, op("credit", 4, 1, 9, 0), op("lookup", 0, 3, 4, 9), op("lookup", 0, 5, 6, 5)}, false},
		"a missing credit":         {[]porcupine.Operation{deposit, op("credit", 4, 1, 3, 0), op("lookup", 0, 4, 5, 5)}, false},
		"refused for its balance":  {[]porcupine.Operation{deposit, refused("withdrawals", 6, 3, 4)}, true},
		"refused without a reason": {[]porcupine.Operation{deposit, refused("withdrawals", 5, 3, 4)}, false},
		"withdrawn below zero":     {[]porcupine.Operation{deposit, op("withdrawals", 6, 3, 4, -1)}, false},
	} {
		if got := porcupine.CheckOperations(accountModel(), c.history); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
