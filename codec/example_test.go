// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"encoding/xml"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/codec"
)

type Deposited struct {
	Amount int64
	Note   string
}

// For has size zero, like the type that a command embeds.
type For[C, R any] struct{ _ [0]func(C) R }

type Deposit struct {
	For[any, int64]
	Amount int64
}

func Example() {
	events := codec.Types(
		codec.Name[Deposited]("deposited"),
		codec.Name[Deposit]("deposit"),
	)
	if err := events.Err(); err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range []any{Deposited{5, "rent"}, Deposit{Amount: 7}} {
		manifest, payload, err := events.Encode(v)
		if err != nil {
			fmt.Println(err)
			return
		}
		back, err := events.Decode(manifest, payload)
		fmt.Printf("%s %q\n%+v %v\n", manifest, payload, back, err)
	}
	// Output:
	// deposited "\x82\xa6Amount\x05\xa4Note\xa4rent"
	// {Amount:5 Note:rent} <nil>
	// deposit "\x81\xa6Amount\a"
	// {For:{_:[]} Amount:7} <nil>
}

func ExampleRegistry_Err() {
	type withSecret struct{ secret int } //nolint:unused // the mistake
	events := codec.Types(
		codec.Name[Deposited]("a b"),
		codec.Name[withSecret]("secret"),
	)
	fmt.Println(events.Err())
	// Output:
	// codec: name "a b" has the character ' '
	// "secret": secret: the field is unexported, and would not be stored: export it, or tag it refold:"-"
}

func ExampleJSON() {
	msgpack := codec.Types(codec.Name[Deposited]("deposited"))
	events := msgpack.Using(codec.JSON())
	manifest, payload, err := events.Encode(Deposited{5, "rent"})
	fmt.Printf("%s %s %v\n", manifest, payload, err)

	// Each registry reads the payloads of the other registry.
	event, err := msgpack.Decode(manifest, payload)
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// deposited+json {"Amount":5,"Note":"rent"} <nil>
	// {Amount:5 Note:rent} <nil>
}

type XML struct{}

func (XML) Name() string                       { return "xml" }
func (XML) Marshal(v any) ([]byte, error)      { return xml.Marshal(v) }
func (XML) Unmarshal(data []byte, v any) error { return xml.Unmarshal(data, v) }

func ExampleFormat() {
	events := codec.Types(codec.Name[Deposited]("deposited")).Using(XML{})
	manifest, payload, err := events.Encode(Deposited{5, "rent"})
	fmt.Printf("%s %s %v\n", manifest, payload, err)
	event, err := events.Decode(manifest, payload)
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// deposited+xml <Deposited><Amount>5</Amount><Note>rent</Note></Deposited> <nil>
	// {Amount:5 Note:rent} <nil>
}

type Account struct {
	Balance int64
	Limits  map[string]int
	clock   func() int64 `refold:"-"` // injected
}

func ExampleState() {
	st, err := codec.NewState(reflect.TypeFor[*Account]())
	if err != nil {
		fmt.Println(err)
		return
	}
	data, err := st.Encode(&Account{Balance: 5, Limits: map[string]int{"b": 2, "a": 1}})
	fmt.Printf("%q %v\n", data, err)

	fresh := &Account{clock: func() int64 { return 42 }}
	err = st.Decode(data, fresh)
	fmt.Println(fresh.Balance, fresh.Limits, fresh.clock(), err)
	// Output:
	// "\x82\xa7Balance\x05\xa6Limits\x82\xa1a\x01\xa1b\x02" <nil>
	// 5 map[a:1 b:2] 42 <nil>
}

func ExampleNewState() {
	type aggregate struct {
		Wake   chan struct{}
		cached bool //nolint:unused // a mistake
	}
	_, err := codec.NewState(reflect.TypeFor[*aggregate]())
	fmt.Println(err)
	// Output:
	// codec: state *codec_test.aggregate: Wake: a chan struct {} can't be stored
	// cached: the field is unexported, and would not be stored: export it, or tag it refold:"-"
}

func ExampleCheck() {
	fmt.Println(codec.Check([]byte("\xdd\xff\xff\xff\xff")))
	// Output:
	// codec: malformed data: an array of length 4294967295 at byte 0, with 0 bytes left
}
