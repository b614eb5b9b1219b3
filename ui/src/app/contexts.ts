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

/** Short messages about what was done. */
export const toasts = signal<ReadonlyArray<{ readonly id: number; readonly text: string; readonly href?: string }>>([])

let nextToast = 0

export const toast = (text: string, href?: string) => {
  const id = nextToast++
  toasts.set([...toasts.get().slice(-3), href === undefined ? { id, text } : { id, text, href }])
  setTimeout(() => closeToast(id), 9000)
}

export const closeToast = (id: number) => toasts.set(toasts.get().filter((item) => item.id !== id))
