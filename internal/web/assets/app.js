// Times that tick, the viewer's zone, the theme, shortcuts, selection of rows, and the stream that says that something has changed.
(function () {
  'use strict';
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

  function relative(at) {
    var s = Math.round((at - Date.now()) / 1000), n = Math.abs(s);
    if (n < 1) return 'now';
    if (n >= 60 * 86400) return new Date(at).toISOString().slice(0, 10);
    var t = n < 60 ? n + ' s' : n < 3600 ? Math.floor(n / 60) + ' min' : n < 48 * 3600 ? Math.floor(n / 3600) + ' h' : Math.floor(n / 86400) + ' d';
    return s > 0 ? 'in ' + t : t + ' ago';
  }
  function tick() {
    document.querySelectorAll('time[datetime]').forEach(function (e) {
      var at = Date.parse(e.dateTime);
      if (isNaN(at)) return;
      var text = e.dataset.stamp !== undefined ? e.textContent : e.dataset.viewer !== undefined ? new Date(at).toLocaleString('en-GB', { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' }) : relative(at);
      if (e.textContent !== text) e.textContent = text;
      if (!e.dataset.zoned) {
        e.dataset.zoned = '1';
        e.title = new Date(at).toLocaleString('sv', { timeZone: zone }) + ' ' + zone + (zone === 'UTC' ? '' : ' · ' + e.title);
      }
    });
  }
  setInterval(function () { if (!document.hidden) tick(); }, 1000);

  // Theme: as the system has it, unless it was switched.
  var root = document.documentElement;
  function theme(next) {
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    document.querySelectorAll('[data-theme-to]').forEach(function (b) { b.setAttribute('aria-pressed', String((next || '') === b.dataset.themeTo)); });
  }
  try { theme(localStorage.getItem('theme') || ''); } catch (e) { /* storage may be refused */ }

  // Live: one stream while the page is seen, and one refresh in two seconds at most.
  var source, last = Date.now(), waiting;
  function busy() {
    return document.querySelector('#live input:checked, #live details.act[open]') || (document.activeElement && document.activeElement.closest('#live form') && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName));
  }
  function refresh() {
    waiting = 0;
    if (document.hidden || !window.htmx || !document.getElementById('live')) return;
    if (busy()) { waiting = setTimeout(refresh, 2000); return; }
    last = Date.now();
    window.htmx.trigger(document.body, 'refresh');
  }
  function changed() { if (!waiting) waiting = setTimeout(refresh, Math.max(0, last + 2000 - Date.now())); }
  function follow() {
    var live = document.getElementById('live');
    if (!live) return;
    if (document.hidden) { if (source) { source.close(); source = null; } return; }
    if (source) return;
    source = new EventSource(live.dataset.stream);
    source.addEventListener('changed', changed);
  }
  setInterval(function () { if (!document.hidden && document.querySelector('#live [data-poll]')) changed(); }, 2000);
  document.addEventListener('visibilitychange', function () { follow(); if (!document.hidden) tick(); });
  window.addEventListener('pagehide', function () { if (source) { source.close(); source = null; } });
  window.addEventListener('pageshow', follow);

  // Selection of rows, and everything that is clicked.
  function count() {
    var n = document.querySelectorAll('input[name=job]:checked').length;
    document.querySelectorAll('[data-selected]').forEach(function (e) { e.textContent = n === 1 ? '1 selected' : n + ' selected'; });
  }
  function kind() {
    var chosen = document.querySelector('input[name=type]:checked');
    if (chosen) document.querySelectorAll('[data-type]').forEach(function (e) { e.hidden = e.dataset.type.split(' ').indexOf(chosen.value) < 0; });
  }
  document.addEventListener('change', function (e) {
    if (e.target.matches('[data-all]')) document.querySelectorAll('input[name=job]').forEach(function (b) { b.checked = e.target.checked; });
    if (e.target.matches('select[data-submit]')) e.target.form.requestSubmit();
    count(); kind();
  });
  document.addEventListener('click', function (e) {
    var b = e.target.closest('button');
    if (b && b.dataset.themeTo !== undefined) {
      theme(b.dataset.themeTo);
      try { localStorage.setItem('theme', b.dataset.themeTo); } catch (x) { /* as above */ }
    }
    if (b && b.dataset.fill) {
      var input = document.getElementById(b.dataset.fill);
      input.value = b.dataset.value;
      input.dispatchEvent(new Event('input', { bubbles: true }));
      input.focus();
    }
    document.querySelectorAll('details.act[open]').forEach(function (d) { if (!d.contains(e.target)) d.open = false; });
  });

  // Shortcuts: / searches, g and a letter goes to a page, ? shows all.
  var prefix = 0;
  document.addEventListener('keydown', function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 'Escape') document.querySelectorAll('details.act[open]').forEach(function (d) { d.open = false; d.querySelector('summary').focus(); });
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    var help = document.getElementById('help');
    if (e.key === '?' && help) { help.showModal(); return; }
    if (e.key === '/') {
      var search = document.querySelector('input[type=search]');
      e.preventDefault();
      if (search) { search.focus(); search.select(); } else location.href = document.querySelector('[data-key=j]').href;
      return;
    }
    if (e.key === 'n' && Date.now() - prefix > 1000) { var add = document.querySelector('[data-new]'); if (add) location.href = add.href; return; }
    var link = Date.now() - prefix < 1000 && document.querySelector('nav [data-key="' + CSS.escape(e.key) + '"]');
    if (link) location.href = link.href;
    prefix = e.key === 'g' ? Date.now() : 0;
  });

  function start() {
    if (window.Idiomorph) window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) { return !(name === 'open' && node.tagName === 'DETAILS'); };
    var input = document.querySelector('input[data-zone]');
    if (input && !input.value) input.value = zone;
    var list = document.getElementById('zones');
    if (list && Intl.supportedValuesOf) Intl.supportedValuesOf('timeZone').forEach(function (z) { list.appendChild(new Option(z, z)); });
    var help = document.getElementById('help');
    if (help) help.querySelector('button').addEventListener('click', function () { help.close(); });
    if (/[?&]done=/.test(location.search)) history.replaceState(null, '', location.pathname + location.search.replace(/([?&])(done|n)=[^&]*/g, '$1').replace(/[?&]+$/, '').replace(/([?&])&+/g, '$1') + location.hash);
    theme(root.dataset.theme || ''); tick(); kind(); count(); follow();
  }
  document.addEventListener('DOMContentLoaded', start);
  document.addEventListener('htmx:afterSettle', function () { tick(); count(); });
})();
