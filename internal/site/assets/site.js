// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// The search, the menu of small screens and the keys. Without this script, the pages are complete.
'use strict';
(() => {
  const html = document.documentElement;
  const menu = document.getElementById('site-menu');
  const pages = document.getElementById('site-pages');
  const box = document.getElementById('site-search');
  const found = document.getElementById('site-found');
  const status = found.querySelector('p');
  const list = found.querySelector('ul');
  const most = 20; // results
  let index; // a promise of the records, from the first search on

  html.classList.add('has-js');
  const contents = document.querySelector('.contents');
  if (contents) contents.open = matchMedia('(min-width: 75rem)').matches;
  const current = pages.querySelector('[aria-current]');
  pages.scrollTop = current.offsetTop - pages.clientHeight / 2;

  menu.addEventListener('click', () => {
    const open = html.classList.toggle('menu-open');
    menu.setAttribute('aria-expanded', String(open));
  });

  function load() {
    index ??= new Promise((done, failed) => {
      const script = document.createElement('script');
      script.src = html.dataset.root + 'assets/index.js';
      script.onload = () => done(window.searchIndex.map(prepare));
      script.onerror = failed;
      document.head.append(script);
    });
    return index;
  }

  function prepare(record) {
    return { record, page: record.page.toLowerCase(), title: record.title.toLowerCase(), text: record.text.toLowerCase() };
  }

  // score returns how well a section matches: 0 if it lacks one of the words. Equal sections stay in
  // the order of the sidebar.
  function score(section, words) {
    const heading = section.title || section.page; // the first section of a page has no title
    let sum = 0;
    for (const word of words) {
      const points = (heading.startsWith(word) ? 3 : 0) + (heading.includes(word) ? 5 : 0) + (section.title && section.page.includes(word) ? 2 : 0) + (section.text.includes(word) ? 1 : 0);
      if (points === 0) return 0;
      sum += points;
    }
    return sum + (section.text.includes(words.join(' ')) ? 1 : 0);
  }

  // marked returns an element with the text, in which the words are marked.
  function marked(tag, text, words) {
    const element = document.createElement(tag);
    const lower = text.toLowerCase();
    for (let at = 0; at < text.length;) {
      const hits = words.map((word) => ({ word, start: lower.indexOf(word, at) })).filter((hit) => hit.start >= 0);
      hits.sort((a, b) => a.start - b.start || b.word.length - a.word.length);
      const end = hits.length ? hits[0].start : text.length;
      element.append(text.slice(at, end));
      if (!hits.length) break;
      at = end + hits[0].word.length;
      const mark = document.createElement('mark');
      mark.textContent = text.slice(end, at);
      element.append(mark);
    }
    return element;
  }

  // snippet returns the part of the text around the first word.
  function snippet(section, words) {
    const hits = words.map((word) => section.text.indexOf(word)).filter((at) => at >= 0);
    const start = Math.max(0, Math.min(...hits, section.text.length) - 50);
    const from = hits.length && start ? section.text.indexOf(' ', start) + 1 : 0;
    const text = section.record.text;
    return (from ? '… ' : '') + text.slice(from, from + 150) + (text.length > from + 150 ? ' …' : '');
  }

  function result(section, words) {
    const { url, group, page, title } = section.record;
    const link = document.createElement('a');
    link.href = html.dataset.root + url;
    const place = document.createElement('small');
    place.textContent = group;
    link.append(place, marked('strong', title ? `${page} › ${title}` : page, words), marked('span', snippet(section, words), words));
    const item = document.createElement('li');
    item.append(link);
    return item;
  }

  async function search() {
    const query = box.value;
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    found.hidden = words.length === 0;
    if (found.hidden) return;
    let sections;
    try {
      sections = await load();
    } catch {
      status.textContent = 'The index of the search could not be loaded.';
      return;
    }
    if (query !== box.value) return; // a later search has begun
    const hits = sections.map((section) => ({ section, score: score(section, words) })).filter((hit) => hit.score > 0);
    hits.sort((a, b) => b.score - a.score);
    status.textContent = hits.length > most ? `The first ${most} of ${hits.length} results` : hits.length === 1 ? '1 result' : `${hits.length || 'No'} results`;
    list.replaceChildren(...hits.slice(0, most).map((hit) => result(hit.section, words)));
  }

  function close() {
    box.value = '';
    found.hidden = true;
  }

  // move sets the focus to a neighbour of the focused result. The box is above the first one.
  function move(step) {
    const stops = [box, ...list.querySelectorAll('a')];
    stops[stops.indexOf(document.activeElement) + step]?.focus();
  }

  box.addEventListener('input', search);
  box.addEventListener('focus', load);
  list.addEventListener('click', close); // a result may be on this page
  document.addEventListener('click', (event) => { if (!event.target.closest('.search')) found.hidden = true; });
  document.addEventListener('keydown', (event) => {
    const inSearch = event.target.closest?.('.search');
    if (event.key === '/' && event.target !== box && !event.ctrlKey && !event.metaKey && !event.altKey) box.focus();
    else if (event.key === 'Escape' && inSearch) { close(); box.blur(); }
    else if (event.key === 'ArrowDown' && inSearch) move(1);
    else if (event.key === 'ArrowUp' && inSearch) move(-1);
    else if (event.key === 'Enter' && event.target === box) list.querySelector('a')?.click();
    else return;
    event.preventDefault();
  });
})();
