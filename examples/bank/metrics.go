// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !embedded

package main

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/refold-io/refold/plugins/otel"
)

// metrics are the metrics of a bank or of one branch, in the format of Prometheus. Branches in one
// process have a registry each, as if they were processes.
type metrics struct {
	*otel.Telemetry

	handler http.Handler // of GET /metrics
}

func newMetrics() (*metrics, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	telemetry, err := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &metrics{telemetry, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}, nil
}

// serve adds GET /metrics to an API. Like the API, the metrics have no users.
func (m *metrics) serve(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("GET /metrics", m.handler)
	return mux
}
