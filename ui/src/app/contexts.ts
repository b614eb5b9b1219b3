/** What every view may need: who looks at the page, and the newest overview. */
import { createContext } from "preact"
import { useContext } from "preact/hooks"
import type { Live } from "../client/live.ts"
import type { Overview, Session } from "../client/models.ts"
import { signal } from "../client/signal.ts"

export const SessionContext = createContext<Session | null>(null)
export const OverviewContext = createContext<Live<Overview>>({ data: null, problem: null })

export const useSession = (): Session => {
  const session = useContext(SessionContext)
  if (session === null) throw new Error("used outside of a session")
  return session
}

export const useOverview = () => useContext(OverviewContext)

/** Why an operator's control is disabled; undefined if it is not. */
export const useReadOnly = (): string | undefined =>
  useSession().role === "read" ? "You may only read. Ask for the role operate." : undefined

interface Toast {
  readonly id: number
  readonly text: string
  readonly href?: string
  readonly atMs: number
}

/** Short messages about what was done. */
export const toasts = signal<ReadonlyArray<Toast>>([])

let nextToast = 0

export const toast = (text: string, href?: string) => {
  const id = nextToast++
  toasts.set([...toasts.get().slice(-3), { id, text, atMs: Date.now(), ...(href === undefined ? {} : { href }) }])
  setTimeout(() => closeToast(id), 9000)
}

export const closeToast = (id: number) => toasts.set(toasts.get().filter((item) => item.id !== id))

/** When another view is opened. The newest may be about what has opened it. */
export const closeOldToasts = () => toasts.set(toasts.get().filter(({ atMs }) => Date.now() - atMs < 1000))
