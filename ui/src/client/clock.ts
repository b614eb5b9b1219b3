/** The store's clock: answers carry its time, and ages are counted from there, not from the clock of the browser. */
import { useEffect, useRef, useState } from "preact/hooks"
import { isVisible } from "./signal.ts"

let offsetMs: number | undefined

/** An answer may be some seconds old, never of the future: the one that was least late knows the time best. */
export const tellTime = (nowMs: number) => {
  offsetMs = Math.max(offsetMs ?? Number.NEGATIVE_INFINITY, nowMs - Date.now())
}

export const now = (): number => Date.now() + (offsetMs ?? 0)

const listeners = new Set<() => void>()
setInterval(() => {
  if (isVisible.get()) { for (const listener of listeners) listener() }
}, 1000)

/** What `of` makes of the time. It renders again only when that changes, which it looks at each second. */
export const useTimed = <A>(of: (nowMs: number) => A): A => {
  const [, render] = useState(0)
  const value = of(now())
  const latest = useRef({ of, value })
  latest.current = { of, value }
  useEffect(() => {
    const tick = () => {
      if (!Object.is(latest.current.of(now()), latest.current.value)) render((n) => n + 1)
    }
    listeners.add(tick)
    return () => void listeners.delete(tick)
  }, [])
  return value
}
