// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
)

// act is one action of a test message when the message is decided. Scripts write it as
//
//	word(argument,argument){acts}{acts}
//
// where the arguments and the bodies may be missing:
//
//	persist(x,y)     a unit of two events
//	async(x)         a unit that does not hold back other replies
//	then(l){...}     a callback, logged as l; thenasync(l){...} is no barrier
//	reply            answers with the events seen so far
//	refuse(code) noreply later resolve(name) unhandled
//	stash unstash stop panic save request(r)
//	even{...}{...}   the first body if the number of events seen is even
//
// An event named "!" panics when it is applied, "?" can't be encoded, and one that ends in "*"
// requests a snapshot.
type act struct {
	do     string
	args   []string
	bodies [][]act
}

func (a *act) body(i int) []act {
	if i < len(a.bodies) {
		return a.bodies[i]
	}
	return nil
}

func (a *act) arg() string {
	if len(a.args) == 0 {
		return ""
	}
	return a.args[0]
}

func (a act) String() string {
	var b strings.Builder
	b.WriteString(a.do)
	if len(a.args) > 0 {
		fmt.Fprintf(&b, "(%s)", strings.Join(a.args, ","))
	}
	for _, body := range a.bodies {
		fmt.Fprintf(&b, "{%s}", format(body))
	}
	return b.String()
}

func format(acts []act) string {
	words := make([]string, len(acts))
	for i, a := range acts {
		words[i] = a.String()
	}
	return strings.Join(words, " ")
}

// parse parses acts. It panics on a syntax error.
func parse(text string) []act {
	p := &parser{rest: text}
	acts := p.acts()
	if p.rest != "" {
		panic("can't parse " + p.rest)
	}
	return acts
}

type parser struct{ rest string }

func (p *parser) acts() []act {
	var all []act
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		n := strings.IndexAny(p.rest+" ", " (){}")
		if n == 0 {
			return all
		}
		a := act{do: p.rest[:n]}
		p.rest = p.rest[n:]
		if args, ok := p.between('(', ')'); ok {
			a.args = strings.Split(args, ",")
		}
		for strings.HasPrefix(p.rest, "{") {
			p.rest = p.rest[1:]
			a.bodies = append(a.bodies, p.acts())
			if !strings.HasPrefix(p.rest, "}") {
				panic("a } is missing before " + p.rest)
			}
			p.rest = p.rest[1:]
		}
		all = append(all, a)
	}
}

func (p *parser) between(open, end byte) (string, bool) {
	if p.rest == "" || p.rest[0] != open {
		return "", false
	}
	inner, rest, found := strings.Cut(p.rest[1:], string(end))
	if !found {
		panic("a " + string(end) + " is missing before " + p.rest)
	}
	p.rest = rest
	return inner, true
}
