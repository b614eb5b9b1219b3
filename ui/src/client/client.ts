/** The client derived from the interface, the token that it sends, and the lines in which its failures are shown. */
import * as Effect from "effect/Effect"
import * as HttpApiClient from "effect/http-api/HttpApiClient"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as Predicate from "effect/Predicate"
import { Api, Unauthorized } from "../../../src/dashboard/Api.ts"
import { signal } from "./signal.ts"

const tokenKey = "duroxide-prisma/token"

/** Takes a token out of the fragment, before it is read as a route, so that it does not stay in the address bar. */
const tokenOfFragment = (): string | null => {
  const match = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash)
  if (match?.[1] === undefined) return null
  history.replaceState(null, "", `#${match[2] ?? "/"}`)
  return decodeURIComponent(match[1])
}

/** Whether the server wants a token, and why it did not take the one that it got. */
export const signIn = signal<{ readonly message: string } | null>(null)

/** Counts tokens: what was read with one is not shown to the bearer of another. */
export const tokens = signal(0)

export const setToken = (token: string) => {
  sessionStorage.setItem(tokenKey, token)
  tokens.set(tokens.get() + 1)
  signIn.set(null)
}

const takeToken = () => {
  const token = tokenOfFragment()
  if (token !== null) setToken(token)
}
takeToken()
// Before views follow the fragment: this module is loaded first.
window.addEventListener("hashchange", takeToken)

export const hasToken = () => sessionStorage.getItem(tokenKey) !== null

export const forgetToken = () => {
  sessionStorage.removeItem(tokenKey)
  signIn.set({ message: "You are signed out." })
}

const withHeaders = (request: HttpClientRequest.HttpClientRequest) => {
  const token = sessionStorage.getItem(tokenKey)
  // No form and no other site can send this header, which is how the server knows the page.
  const ours = HttpClientRequest.setHeader(request, "x-duroxide-dashboard", "1")
  return token === null ? ours : HttpClientRequest.bearerToken(ours, token)
}

const base = new URL(".", document.baseURI).href.replace(/\/$/, "")

export const api = Effect.runSync(
  HttpApiClient.make(Api, { baseUrl: base, transformClient: HttpClient.mapRequest(withHeaders) }).pipe(
    Effect.provide(FetchHttpClient.layer)
  )
)

/** A failure in one line that says what to do; asks for a token where that is the cure. */
export const problemOf = (error: unknown): string => {
  if (error instanceof Unauthorized) {
    // Sessions of its own are renewed elsewhere: the message says where.
    if (error.asksForToken !== true) return messageOf(error)
    const message = hasToken() ? messageOf(error) : "The dashboard needs a token."
    // What was still on its way at a sign-out does not take its message away.
    if (signIn.get() === null) signIn.set({ message })
    return message
  }
  if (Predicate.isTagged(error, "HttpClientError")) return "The server did not answer. Is the process still running?"
  if (Predicate.isTagged(error, "SchemaError")) return "The server answered in another version. Reload this tab."
  return messageOf(error)
}

/** The tag of the reason why the store refused; null for every other failure. */
export const codeOf = (error: unknown): string | null =>
  Predicate.isTagged(error, "Refused") && Predicate.hasProperty(error, "code") && Predicate.isString(error.code)
    ? error.code
    : null

const messageOf = (error: unknown): string =>
  Predicate.hasProperty(error, "message") && Predicate.isString(error.message) && error.message !== ""
    ? error.message
    : String(error)
