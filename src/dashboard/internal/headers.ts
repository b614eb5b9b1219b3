/**
 * What answers say to browsers: the page loads no part from elsewhere, and is not shown in pages from elsewhere.
 */

const always = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin"
}

/** Headers of answers with data. Proxies are asked not to keep streams back. */
export const ofData = {
  ...always,
  "cache-control": "no-store",
  "x-accel-buffering": "no",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'"
}

/** Headers of the page and its files. */
export const ofFiles = {
  ...always,
  "x-frame-options": "DENY",
  "cross-origin-opener-policy": "same-origin",
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "font-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'"
  ].join("; ")
}
