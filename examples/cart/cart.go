// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

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

// contents is what a cart holds: how many of each product. Nodes that count at the same time are added up.
type contents = crdt.PNCounterMap[string]

// Majorities of writers and readers meet in at least one node, so a read sees what was written before. AtLeast
// makes that hold in a small cluster also while a node comes or goes.
func reads() ddata.ReadLevel   { return ddata.ReadMajority().AtLeast(2) }
func writes() ddata.WriteLevel { return ddata.WriteMajority().AtLeast(2) }

func cartOf(customer string) ddata.Key[contents] {
	return ddata.Key[contents]("cart-" + customer)
}

// Items returns what is in a cart, sorted by product.
func (c Carts) Items(ctx context.Context, customer string) ([]Item, error) {
	cart, err := ddata.Get(ctx, c.data, cartOf(customer), reads())
	if errors.Is(err, ddata.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return itemsOf(cart)
}

func itemsOf(cart contents) ([]Item, error) {
	var items []Item
	for entry, err := range cart.All() {
		if err != nil {
			return nil, err
		}
		items = append(items, Item{entry.Key, entry.Value.Value()})
	}
	return items, nil
}

// Add puts some of a product into a cart. After ddata.ErrQuorum it is in the cart of this node, and others hear of
// it when they can; adding it again would count twice.
func (c Carts) Add(ctx context.Context, customer, product string, quantity int64) error {
	if quantity < 1 {
		return fmt.Errorf("add %d of %q: want 1 or more", quantity, product)
	}
	_, err := ddata.Update(ctx, c.data, cartOf(customer), writes(), func(cart contents) (contents, error) {
		return cart.Add(c.data.Self(), product, quantity)
	})
	return err
}

// Remove takes a product out of a cart. A set forgets only what the node has seen, so it looks first what
// others know. What is added elsewhere in that moment stays, which a customer likes better than the reverse.
func (c Carts) Remove(ctx context.Context, customer, product string) error {
	if _, err := c.Items(ctx, customer); err != nil {
		return err
	}
	_, err := ddata.Update(ctx, c.data, cartOf(customer), writes(), func(cart contents) (contents, error) {
		return cart.Remove(c.data.Self(), product)
	})
	return err
}
