// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/refold-io/refold/codec"
)

// Add a field: if its zero value is not correct for old values, an Upcast sets the field.
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

// read decodes a value that another release has stored.
func read[Old, New any](written Old) any {
	manifest, payload, err := codec.Types(codec.Name[Old]("opened")).Encode(written)
	if err != nil {
		return err
	}
	event, err := codec.Types(codec.Name[New]("opened")).Decode(manifest, payload)
	if err != nil {
		return err
	}
	return event
}

// Rename a field: a tag keeps the stored name, so that each release reads the events of the other.
func Example_renameField() {
	type Before struct{ Name string }
	type After struct {
		Owner string `msgpack:"Name"`
	}
	fmt.Printf("%+v\n", read[Before, After](Before{"ann"}))
	fmt.Printf("%+v\n", read[After, Before](After{"bob"}))
	// Output:
	// {Owner:ann}
	// {Name:bob}
}

// Rename a stored field in two releases. An earlier release would read nothing from the new name, so
// a release that reads both names replaces it first.
func Example_renameStoredField() {
	type Release1 struct{ Name string }
	type Release2 struct {
		Owner string `msgpack:"Name,alias:Owner"` // reads both, writes Name
	}
	type Release3 struct {
		Owner string `msgpack:"Owner,alias:Name"` // reads both, writes Owner
	}
	fmt.Printf("1 reads 2: %+v\n", read[Release2, Release1](Release2{"ann"}))
	fmt.Printf("2 reads 3: %+v\n", read[Release3, Release2](Release3{"ann"}))
	fmt.Printf("3 reads 1: %+v\n", read[Release1, Release3](Release1{"ann"}))
	fmt.Printf("1 reads 3: %+v\n", read[Release3, Release1](Release3{"ann"})) // never run both
	// Output:
	// 1 reads 2: {Name:ann}
	// 2 reads 3: {Owner:ann}
	// 3 reads 1: {Owner:ann}
	// 1 reads 3: {Name:}
}

// Introduce a version in two releases: the first one reads it and writes the version before.
func ExampleUpcast_laterVersion() {
	type Opened struct{ Euros int }
	type OpenedV2 struct{ Cents int }

	release2 := codec.Types(
		codec.Name[Opened]("opened"),
		codec.Upcast("opened", 2, func(next OpenedV2) (Opened, error) {
			return Opened{Euros: next.Cents / 100}, nil
		}),
	)
	release3 := codec.Types(
		codec.Name[OpenedV2]("opened").Version(2),
		codec.Upcast("opened", 1, func(old Opened) (OpenedV2, error) {
			return OpenedV2{Cents: old.Euros * 100}, nil
		}),
	)
	manifest, payload, err := release3.Encode(OpenedV2{Cents: 700})
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := release2.Decode(manifest, payload)
	fmt.Printf("%s %+v %v\n", manifest, event, err)

	release1 := codec.Types(codec.Name[Opened]("opened"))
	_, err = release1.Decode(manifest, payload)
	fmt.Println(err)
	// Output:
	// opened@2 {Euros:7} <nil>
	// codec: unknown manifest: "opened@2" (name "opened", version 2, format msgpack): written by a newer program, this one supports version 1
}

// Introduce the new name of an event type in two releases: the first one reads it.
func ExampleType_Was_laterName() {
	release2 := codec.Types(codec.Name[Deposited]("deposited").Was("money-in"))
	release3 := codec.Types(codec.Name[Deposited]("money-in").Was("deposited"))
	manifest, payload, err := release3.Encode(Deposited{Amount: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	event, err := release2.Decode(manifest, payload)
	fmt.Printf("%s %+v %v\n", manifest, event, err)
	// Output:
	// money-in {Amount:5 Note:} <nil>
}

// Rename a Go type: the stored name stays. If the stored name changes too, Was lists the earlier
// name.
func ExampleType_Was() {
	events := codec.Types(codec.Name[Deposited]("money-in").Was("deposited"))
	event, err := events.Decode("deposited", []byte("\x81\xa6Amount\x05"))
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// {Amount:5 Note:} <nil>
}

// Split: one old event becomes several.
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

// Remove: the Go type of an event that is no longer needed can be deleted.
func ExampleRemoved() {
	events := codec.Types(codec.Name[Deposited]("deposited"), codec.Removed("greeted"))
	values, err := events.DecodeAppend(nil, "greeted", []byte("anything"))
	fmt.Println(len(values), err)

	_, err = events.DecodeAppend(nil, "saluted", []byte("anything"))
	fmt.Println(err, errors.Is(err, codec.ErrUnknown))
	// Output:
	// 0 <nil>
	// codec: unknown manifest: "saluted" (name "saluted", version 1, format msgpack): add codec.Name[...]("saluted") to the registry, or Was("saluted") to the type that had the name, or codec.Removed("saluted") true
}

// Merge: several old types become one new one.
func ExampleUpcast_merge() {
	type PaidInCash struct{ Amount int }
	type PaidByCard struct {
		Amount int
		Card   string
	}
	type Paid struct {
		Amount int
		Means  string
	}
	before := codec.Types(codec.Name[PaidInCash]("paid-in-cash"), codec.Name[PaidByCard]("paid-by-card"))
	after := codec.Types(
		codec.Name[Paid]("paid"),
		codec.Upcast("paid-in-cash", 1, func(old PaidInCash) (Paid, error) {
			return Paid{old.Amount, "cash"}, nil
		}),
		codec.Upcast("paid-by-card", 1, func(old PaidByCard) (Paid, error) {
			return Paid{old.Amount, "card " + old.Card}, nil
		}),
	)
	for _, v := range []any{PaidInCash{5}, PaidByCard{7, "1234"}} {
		manifest, payload, err := before.Encode(v)
		if err != nil {
			fmt.Println(err)
			return
		}
		event, err := after.Decode(manifest, payload)
		fmt.Printf("%+v %v\n", event, err)
	}
	// Output:
	// {Amount:5 Means:cash} <nil>
	// {Amount:7 Means:card 1234} <nil>
}

// Remove some events of a type, depending on their contents: a Split of the previous version.
func ExampleSplit_filter() {
	type NotedV1 struct{ Text string }
	type Noted struct{ Text string }

	before := codec.Types(codec.Name[NotedV1]("noted"))
	after := codec.Types(
		codec.Name[Noted]("noted").Version(2),
		codec.Split("noted", 1, func(old NotedV1) ([]any, error) {
			if old.Text == "" { // stored by a bug of an earlier release
				return nil, nil
			}
			return []any{Noted(old)}, nil
		}),
	)
	for _, v := range []NotedV1{{"milk"}, {""}} {
		manifest, payload, err := before.Encode(v)
		if err != nil {
			fmt.Println(err)
			return
		}
		events, err := after.DecodeAppend(nil, manifest, payload)
		fmt.Println(events, err)
	}
	// Output:
	// [{milk}] <nil>
	// [] <nil>
}

// Money can't be stored, because its fields are unexported.
type Money struct {
	units    int64
	currency string
}

type Charged struct{ Price Money }

// ChargedRow is how a Charged is stored.
type ChargedRow struct {
	Units    int64
	Currency string
}

// Detach: the program uses one type and stores another one.
func ExampleAdapt() {
	events := codec.Types(codec.Adapt("charged",
		func(e Charged) (ChargedRow, error) {
			if e.Price.currency == "" {
				return ChargedRow{}, errors.New("a price without a currency")
			}
			return ChargedRow{e.Price.units, e.Price.currency}, nil
		},
		func(row ChargedRow) (Charged, error) {
			return Charged{Money{row.Units, row.Currency}}, nil
		},
	))
	manifest, payload, err := events.Encode(Charged{Money{500, "USD"}})
	fmt.Printf("%s %q %v\n", manifest, payload, err)
	event, err := events.Decode(manifest, payload)
	fmt.Printf("%+v %v\n", event, err)

	_, _, err = events.Encode(Charged{})
	fmt.Println(err)
	// Output:
	// charged "\x82\xa5Units\xcd\x01\xf4\xa8Currency\xa3USD" <nil>
	// {Price:{units:500 currency:USD}} <nil>
	// codec: encode charged: a price without a currency
}

// The stored form of an adapted type changes like any other type: an Upcast converts the old form
// to the new one.
func ExampleAdapt_version() {
	type ChargedRowV1 struct{ Price string }
	toRow := func(e Charged) (ChargedRow, error) { return ChargedRow{e.Price.units, e.Price.currency}, nil }
	fromRow := func(row ChargedRow) (Charged, error) { return Charged{Money{row.Units, row.Currency}}, nil }

	events := codec.Types(
		codec.Adapt("charged", toRow, fromRow).Version(2),
		codec.Upcast("charged", 1, func(old ChargedRowV1) (ChargedRow, error) {
			units, currency, _ := strings.Cut(old.Price, " ")
			row := ChargedRow{Currency: currency}
			_, err := fmt.Sscan(units, &row.Units)
			return row, err
		}),
	)
	event, err := events.Decode("charged", []byte("\x81\xa5Price\xa7500 USD"))
	fmt.Printf("%+v %v\n", event, err)
	// Output:
	// {Price:{units:500 currency:USD}} <nil>
}
