// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

// Carts are the shopping carts of all customers, as one node has them. A customer may come to
// another node each time, and to several at once.
type Carts struct{ data *ddata.Replicator }

// Item is a product in a cart.
type Item struct {
	Product  string
	Quantity int64
}

// Addition is one time that a customer has put something into a cart. The request is what the customer's program has
// named it: it may send it again, to any node, and it counts once.
type Addition struct {
	Request  string
	Product  string
	Quantity int64
}

// contents is what a cart holds: the additions that were not taken out again. Quantities are added up when the cart is read, so
// additions on several nodes at once all count. A map from products to counters could not do that: in a counter that is
// removed and begun anew, old counts can come back from a node that has missed the removal.
type contents = crdt.ORSet[Addition]

// types returns the types of the example. All nodes need the same.
func types() (*crdt.Types, error) {
	return crdt.NewTypes(codec.Types(codec.Name[Addition]("addition")))
}

func cartOf(customer string) ddata.Key[contents] {
	return ddata.Key[contents]("cart-" + customer)
}

// Items returns what is in a cart, sorted by product. A majority that is read and one that is written meet in at least one node,
// so it sees all that was put in or taken out before, as long as no nodes come or go.
func (c Carts) Items(ctx context.Context, customer string) ([]Item, error) {
	cart, err := ddata.Get(ctx, c.data, cartOf(customer), ddata.ReadMajority())
	if errors.Is(err, ddata.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return itemsOf(cart)
}

func itemsOf(cart contents) ([]Item, error) {
	quantities := map[string]int64{}
	for a, err := range cart.All() {
		if err != nil {
			return nil, err
		}
		quantities[a.Product] += a.Quantity
	}
	var items []Item
	for product, quantity := range quantities {
		items = append(items, Item{product, quantity})
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Product, b.Product) })
	return items, nil
}

// Add puts some of a product into a cart. After ddata.ErrQuorum it is in the cart of this node, and others hear of it when they
// can; to add it again, with the same name of the request, does no harm unless it was taken out meanwhile.
func (c Carts) Add(ctx context.Context, customer string, a Addition) error {
	if a.Quantity < 1 || a.Request == "" {
		return fmt.Errorf("add %d of %q for request %q: want 1 or more, and a request", a.Quantity, a.Product, a.Request)
	}
	_, err := ddata.Update(ctx, c.data, cartOf(customer), ddata.WriteMajority(), func(cart contents) (contents, error) {
		return cart.Add(c.data.Self(), a)
	})
	return err
}

// Remove takes a product out of a cart: the additions of it that this node knows, which are those that a majority knows, as it reads them
// first. What is added elsewhere in that moment stays, and nothing else: of 2 tea that are removed while 1 is added, 1 is left.
func (c Carts) Remove(ctx context.Context, customer, product string) error {
	if _, err := c.Items(ctx, customer); err != nil {
		return err
	}
	_, err := ddata.Update(ctx, c.data, cartOf(customer), ddata.WriteMajority(), func(cart contents) (contents, error) {
		return without(cart, c.data.Self(), product)
	})
	return err
}

func without(cart contents, self *crdt.Self, product string) (contents, error) {
	var gone []Addition
	for a, err := range cart.All() {
		if err != nil {
			return cart, err
		}
		if a.Product == product {
			gone = append(gone, a)
		}
	}
	return cart.Remove(self, gone...)
}
