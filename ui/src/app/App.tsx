import * as Effect from "effect/Effect"
import { useEffect, useRef, useState } from "preact/hooks"
import { api, forgetToken, hasToken, signIn, tokens } from "../client/client.ts"
import { tellTime } from "../client/clock.ts"
import { type Live, useLive } from "../client/live.ts"
import type { Overview, Session } from "../client/models.ts"
import { useQuery } from "../client/query.ts"
import { useSignal } from "../client/signal.ts"
import { Problem } from "../parts/panel.tsx"
import {
  closeOldToasts,
  closeToast,
  OverviewContext,
  SessionContext,
  toasts,
  useOverview,
  useSession
} from "./contexts.ts"
import { Nav } from "./Nav.tsx"
import { useRoute } from "./route.ts"
import { hidePayloads, type Theme, theme } from "./settings.ts"
import { SignIn } from "./SignIn.tsx"
import { titleOf, View } from "./View.tsx"

export const App = () => {
  const wanted = useSignal(signIn)
  const round = useSignal(tokens)
  return wanted === null ? <SigningIn key={round} /> : <SignIn message={wanted.message} />
}

const SigningIn = () => {
  const session = useQuery(() => api.read.session({}), [])
  if (session.data === null) {
    return (
      <main class="sign-in">
        <h1 class="hidden-visually">duroxide-prisma</h1>
        {session.problem === null
          ? <p class="muted">Loading…</p>
          : <Problem text={session.problem} retry={session.reload} />}
      </main>
    )
  }
  return <SignedIn session={session.data} />
}

const SignedIn = ({ session }: { readonly session: Session }) => {
  const overview = useOverviewStream()
  return (
    <SessionContext.Provider value={session}>
      <OverviewContext.Provider value={overview}>
        <Frame />
      </OverviewContext.Provider>
    </SessionContext.Provider>
  )
}

const patienceMs = 5000
const pollMs = 10_000

/** The stream of the overview. While nothing comes of it, as behind a proxy that holds it back, it asks instead. */
const useOverviewStream = (): Live<Overview> => {
  const live = useLive(() => api.read.live({}), [], (item) => tellTime(item.nowMs))
  const [isDown, setDown] = useState(false)
  const isProblem = live.problem !== null || live.data === null
  useEffect(() => {
    if (!isProblem) return setDown(false)
    const timer = setTimeout(() => setDown(true), patienceMs)
    return () => clearTimeout(timer)
  }, [isProblem])
  const polled = useQuery<Overview | null, unknown>(
    () => isDown ? api.read.overview({}) : Effect.succeed(null),
    [isDown],
    { everyMs: isDown ? pollMs : null }
  )
  return { data: (isDown ? polled.data : null) ?? live.data, problem: live.problem }
}

const Frame = () => {
  const route = useRoute()
  const main = useRef<HTMLElement>(null)
  const address = route.path.join("/")
  const isFirst = useRef(true)
  useEffect(() => {
    document.title = `${titleOf(route)} · duroxide-prisma`
    // A reader of the screen starts at the new view, as after a page load.
    if (!isFirst.current) {
      main.current?.focus({ preventScroll: true })
      window.scrollTo(0, 0)
      closeOldToasts()
    }
    isFirst.current = false
  }, [address])
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault()
          main.current?.focus()
        }}
      >
        Skip to the content
      </a>
      <TopBar />
      <div class="frame">
        <Nav />
        <main ref={main} id="main" tabIndex={-1}>
          <View route={route} />
        </main>
      </div>
      <Toasts />
    </>
  )
}

const TopBar = () => {
  const session = useSession()
  const { problem } = useOverview()
  const payloads = useSignal(hidePayloads)
  const chosen = useSignal(theme)
  return (
    <header class="topbar">
      <a class="brand" href="#/">
        <img src="./icon.svg" alt="" />
        <span>duroxide-prisma</span>
      </a>
      <span class="store" title={`version ${session.packageVersion}`}>
        {session.address}, schema {session.schema}
      </span>
      <div class="end">
        <span
          class={problem === null ? "live" : "live off"}
          role="status"
          title={problem ?? "Changes arrive by themselves."}
        >
          <span>{problem === null ? "live" : `not live: ${problem}`}</span>
        </span>
        {session.seesPayloads && (
          <button
            type="button"
            class="button small plain"
            aria-pressed={payloads === "yes"}
            title="Payloads stay out of sight in this browser, for example while you share your screen."
            onClick={() => hidePayloads.set(payloads === "yes" ? "no" : "yes")}
          >
            {payloads === "yes" ? "Payloads hidden" : "Hide payloads"}
          </button>
        )}
        <select
          class="theme"
          aria-label="Colours"
          value={chosen}
          onChange={(event) => theme.set(event.currentTarget.value as Theme)}
        >
          <option value="system">Colours: system</option>
          <option value="light">Colours: light</option>
          <option value="dark">Colours: dark</option>
        </select>
        <span class="who muted small nowrap" title={session.role === "read" ? "may only read" : "may operate"}>
          {session.actor} · {session.role}
        </span>
        {hasToken() && <button type="button" class="button small plain" onClick={forgetToken}>Sign out</button>}
      </div>
    </header>
  )
}

const Toasts = () => {
  const items = useSignal(toasts)
  return (
    <div class="toasts" role="status">
      {items.map((item) => (
        <div class="toast" key={item.id}>
          <span>{item.href === undefined ? item.text : <a href={item.href}>{item.text}</a>}</span>
          <button type="button" class="button small plain" aria-label="Close" onClick={() => closeToast(item.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  )
}
