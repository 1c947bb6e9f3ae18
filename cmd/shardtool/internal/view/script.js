// Marks and keys. The pages work without it.
'use strict';

const store = 'marks ' + document.body.dataset.set;

// load returns the marked numbers by source.
function load() {
  try {
    return JSON.parse(localStorage.getItem(store)) || {};
  } catch {
    return {};
  }
}

function save(marks) {
  localStorage.setItem(store, JSON.stringify(marks));
  show();
}

function toggle(card) {
  const marks = load();
  const list = new Set(marks[card.dataset.source] || []);
  const number = card.dataset.number;
  if (!list.delete(number)) list.add(number);
  marks[card.dataset.source] = [...list];
  save(marks);
}

// show draws the state of the marks.
function show() {
  const marks = load();
  let count = 0;
  for (const list of Object.values(marks)) count += list.length;
  document.getElementById('marks-count').textContent = count ? ' (' + count + ')' : '';
  for (const card of document.querySelectorAll('[data-number]')) {
    const on = (marks[card.dataset.source] || []).includes(card.dataset.number);
    card.classList.toggle('marked', on);
    const button = card.querySelector('.mark');
    button.hidden = false;
    button.setAttribute('aria-pressed', String(on));
    button.textContent = on ? 'Marked' : 'Mark';
  }
  for (const input of document.querySelectorAll('[data-marks]')) {
    input.value = (marks[input.dataset.marks] || []).join(',');
  }
}

function move(by) {
  const cards = [...document.querySelectorAll('.card')];
  const at = cards.indexOf(document.activeElement.closest('.card'));
  const next = cards[Math.min(Math.max(at + by, 0), cards.length - 1)];
  if (next) next.focus();
}

const keys = {
  ArrowRight: () => move(1),
  ArrowLeft: () => move(-1),
  m: () => {
    const card = document.activeElement.closest('.card') || document.querySelector('.card.whole');
    if (card) toggle(card);
  },
  n: () => follow('next'),
  p: () => follow('prev'),
};

function follow(rel) {
  const link = document.querySelector('a[rel="' + rel + '"]');
  if (link) link.click();
}

document.addEventListener('keydown', (event) => {
  const typing = event.target.closest('input, select, textarea, audio, video, pre, .tree');
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

document.addEventListener('click', (event) => {
  const button = event.target.closest('.mark');
  if (button) toggle(button.closest('[data-number]'));
});

document.getElementById('marks-clear')?.addEventListener('click', () => save({}));
window.addEventListener('storage', show);
show();
