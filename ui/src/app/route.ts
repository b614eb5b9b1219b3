/** The fragment of the address: which view is open, and its filters, so that a link shows the same. */
import { useEffect, useState } from "preact/hooks"
import { signal } from "../client/signal.ts"

export type Query = Readonly<Record<string, string>>

export interface Route {
  readonly path: ReadonlyArray<string>
  readonly query: Query
}

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const current = (): Route => {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2)
  return {
    path: path.split("/").filter((part) => part !== "").map(decode),
    query: Object.fromEntries(new URLSearchParams(query))
  }
}

export const link = (path: ReadonlyArray<string>, query: Readonly<Record<string, string | undefined>> = {}): string => {
  const params = new URLSearchParams()
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") params.set(key, value)
  }
  const text = params.toString()
  return `#/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`
}

export const toInstance = (id: string, query: Readonly<Record<string, string | undefined>> = {}): string =>
  link(["instances", id], query)

export const go = (href: string) => {
  location.hash = href
}

/** Counts clicks on links to where one is already: the address does not change, but the view should scroll. */
export const jumps = signal(0)
document.addEventListener("click", (event) => {
  const anchor = event.target instanceof Element ? event.target.closest("a") : null
  if (anchor !== null && anchor.getAttribute("href") === location.hash) jumps.set(jumps.get() + 1)
})

/** Without an entry in the history of the browser: for filters that change while someone types. */
export const replace = (href: string) => {
  history.replaceState(null, "", href)
  window.dispatchEvent(new HashChangeEvent("hashchange"))
}

export const useRoute = (): Route => {
  const [route, setRoute] = useState(current)
  useEffect(() => {
    const follow = () => setRoute(current())
    window.addEventListener("hashchange", follow)
    return () => window.removeEventListener("hashchange", follow)
  }, [])
  return route
}
