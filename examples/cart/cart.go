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

// Carts are the shopping carts of all customers on one node. A customer may use another node each
// time, or several nodes at once.
type Carts struct{ data *ddata.Replicator }

// Item is a product in a cart.
type Item struct {
	Product  string
	Quantity int64
}

// Addition is one addition to a cart. Request is the ID that the customer's program gave the
// request. The program may repeat the request on any node. The addition counts once.
type Addition struct {
	Request  string
	Product  string
	Quantity int64
}

// contents is the set of the additions to a cart that were not removed. Quantities are added up on
// read, so all concurrent additions on several nodes count. A map from products to counters could
// not guarantee that: a counter that was removed and created again can regain old counts from a
// node that has missed the removal.
type contents = crdt.ORSet[Addition]

// types returns the types of the example. All nodes need the same types.
func types() (*crdt.Types, error) {
	return crdt.NewTypes(codec.Types(codec.Name[Addition]("addition")))
}

func cartOf(customer string) ddata.Key[contents] {
	return ddata.Key[contents]("cart-" + customer)
}

// Items returns the contents of a cart, sorted by product. A majority that is read and a majority
// that was written share at least one node, so Items returns all earlier changes, unless nodes join
// or leave.
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

// Add adds a product to a cart. After ddata.ErrQuorum the addition is in the cart of this node and
// spreads to the others when they are reachable. A repetition with the same request is harmless,
// unless the product was removed between the two calls.
func (c Carts) Add(ctx context.Context, customer string, a Addition) error {
	if a.Quantity < 1 || a.Request == "" {
		return fmt.Errorf("add %d of %q for request %q: the quantity must be at least 1, and the request must not be empty", a.Quantity, a.Product, a.Request)
	}
	_, err := ddata.Update(ctx, c.data, cartOf(customer), ddata.WriteMajority(), func(cart contents) (contents, error) {
		return cart.Add(c.data.Self(), a)
	})
	return err
}

// Remove removes a product from a cart. It reads the cart from a majority of the nodes and removes
// the additions of the product that it has read. A concurrent addition on another node remains: if
// one node removes 2 tea while another node adds 1 tea, 1 tea remains.
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
