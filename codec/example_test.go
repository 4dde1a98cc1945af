// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"reflect"

	"github.com/refold-io/refold/codec"
)

type Deposited struct {
	Amount int64
	Note   string
}

// For stands for the embedded part of a command, which takes no bytes.
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

// A field that was added is set when an old value is read, if zero does not do.
func ExampleUpcast_addField() {
	type OpenedV1 struct{ Owner string }
	type Opened struct{ Owner, Currency string }

	before := codec.Types(codec.Name[OpenedV1]("opened"))
	after := codec.Types(
		codec.Name[Opened]("opened").Version(2),
		codec.Upcast("opened", 1, func(old OpenedV1) (Opened, error) {
			return Opened{Owner: old.Owner, Currency: "USD"}, nil
		}),
	)
	manifest, payload, err := before.Encode(OpenedV1{"ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := after.Decode(manifest, payload)
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// {Owner:ann Currency:USD} <nil>
}

// A field that was only renamed needs no version, but an alias.
func Example_renameField() {
	type Before struct{ Name string }
	type After struct {
		Owner string `msgpack:"Owner,alias:Name"`
	}
	manifest, payload, err := codec.Types(codec.Name[Before]("opened")).Encode(Before{"ann"})
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := codec.Types(codec.Name[After]("opened")).Decode(manifest, payload)
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// {Owner:ann} <nil>
}

// A type that was renamed keeps its name. If the name has to change as well,
// Was has the earlier one.
func ExampleType_Was() {
	events := codec.Types(codec.Name[Deposited]("money-in").Was("deposited"))
	event, err := events.Decode("deposited", []byte("\x81\xa6Amount\x05"))
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// {Amount:5 Note:} <nil>
}

// One old event becomes several.
func ExampleSplit() {
	type Moved struct{ From, To string }
	type Left struct{ Place string }
	type Arrived struct{ Place string }

	before := codec.Types(codec.Name[Moved]("moved"))
	after := codec.Types(
		codec.Name[Left]("left"),
		codec.Name[Arrived]("arrived"),
		codec.Split("moved", 1, func(old Moved) ([]any, error) {
			return []any{Left{old.From}, Arrived{old.To}}, nil
		}),
	)
	manifest, payload, err := before.Encode(Moved{"Ulm", "Bonn"})
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := after.DecodeAppend(nil, manifest, payload)
	fmt.Printf("%T %v\n", events, err)
	for _, event := range events {
		fmt.Printf("%T %+v\n", event, event)
	}
	// Output:
	// []interface {} <nil>
	// codec_test.Left {Place:Ulm}
	// codec_test.Arrived {Place:Bonn}
}

// The Go type of an event that is no longer of interest can be deleted.
func ExampleRemoved() {
	events := codec.Types(codec.Name[Deposited]("deposited"), codec.Removed("greeted"))
	values, err := events.DecodeAppend(nil, "greeted", []byte("anything"))
	fmt.Println(len(values), err)

	_, err = events.DecodeAppend(nil, "saluted", []byte("anything"))
	fmt.Println(err, errors.Is(err, codec.ErrUnknown))
	// Output:
	// 0 <nil>
	// codec: unknown manifest: "saluted" (name "saluted", version 1, format msgpack) true
}

func ExampleJSON() {
	msgpack := codec.Types(codec.Name[Deposited]("deposited"))
	events := msgpack.Using(codec.JSON())
	manifest, payload, err := events.Encode(Deposited{5, "rent"})
	fmt.Printf("%s %s %v\n", manifest, payload, err)

	// Each reads what the other wrote.
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
