"use strict";
// Keeps the page's own files, so that it opens without a network and can be installed. Asks for nothing else.

const FILES = ["./", "index.html", "manifest.webmanifest", "icon.svg"];
const NAME = "blob-@VERSION@";

addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const old = (names) => names.filter((name) => name.startsWith("blob-") && name !== NAME);
  event.waitUntil(caches.keys().then((names) => Promise.all(old(names).map((name) => caches.delete(name)))));
});

addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== location.origin) return;
  event.respondWith(caches.match(event.request).then((kept) => kept ?? fetch(event.request)));
});
