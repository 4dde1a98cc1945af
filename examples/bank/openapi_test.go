// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// spec contains the parts of the OpenAPI file that the tests use.
type spec struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	OperationID string `json:"operationId"`
	RequestBody struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct {
			Schema *schema `json:"schema"`
		} `json:"content"`
	} `json:"responses"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	Type       string             `json:"type"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Enum       []string           `json:"enum"`
	Pattern    string             `json:"pattern"`
}

func readSpec(t *testing.T, data []byte) *spec {
	t.Helper()
	var s spec
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// operation returns the operation of a request, by method and path.
func (s *spec) operation(method, path string) (operation, bool) {
	for pattern, methods := range s.Paths {
		re := "^" + regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(pattern, "[^/]+") + "$"
		if op, ok := methods[strings.ToLower(method)]; ok && regexp.MustCompile(re).MatchString(path) {
			return op, true
		}
	}
	return operation{}, false
}

// check checks a JSON value against a schema: required fields are present, no other fields occur,
// and all values have the right type.
func (s *spec) check(sc *schema, v any, at string) error {
	if name, ok := strings.CutPrefix(sc.Ref, "#/components/schemas/"); ok {
		if sc = s.Components.Schemas[name]; sc == nil {
			return fmt.Errorf("%s: schema %q is not defined", at, name)
		}
	}
	switch sc.Type {
	case "object":
		object, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %T is not an object", at, v)
		}
		for _, name := range sc.Required {
			if _, ok := object[name]; !ok {
				return fmt.Errorf("%s: %s is missing", at, name)
			}
		}
		for name, value := range object {
			p := sc.Properties[name]
			if p == nil {
				return fmt.Errorf("%s: %s is not in the schema", at, name)
			}
			if err := s.check(p, value, at+"."+name); err != nil {
				return err
			}
		}
	case "array":
		array, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%s: %T is not an array", at, v)
		}
		for i, value := range array {
			if err := s.check(sc.Items, value, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "string":
		text, ok := v.(string)
		switch {
		case !ok:
			return fmt.Errorf("%s: %T is not a string", at, v)
		case len(sc.Enum) > 0 && !slices.Contains(sc.Enum, text):
			return fmt.Errorf("%s: %q is not one of %q", at, text, sc.Enum)
		case sc.Pattern != "" && !regexp.MustCompile(sc.Pattern).MatchString(text):
			return fmt.Errorf("%s: %q does not match %s", at, text, sc.Pattern)
		}
	case "integer":
		if n, ok := v.(float64); !ok || n != float64(int64(n)) {
			return fmt.Errorf("%s: %v is not an integer", at, v)
		}
	default:
		return fmt.Errorf("%s: the schema has the unknown type %q", at, sc.Type)
	}
	return nil
}
