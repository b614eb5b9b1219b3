/** A value that views follow: what more than one of them has to know. */
import { useEffect, useState } from "preact/hooks"

export interface Signal<A> {
  readonly get: () => A
  readonly set: (value: A) => void
  readonly follow: (listener: (value: A) => void) => () => void
}

export const signal = <A>(initial: A): Signal<A> => {
  let value = initial
  const listeners = new Set<(value: A) => void>()
  return {
    get: () => value,
    set: (next) => {
      if (Object.is(value, next)) return
      value = next
      for (const listener of Array.from(listeners)) listener(next)
    },
    follow: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    }
  }
}

export const useSignal = <A>(source: Signal<A>): A => {
  const [value, setValue] = useState(source.get)
  useEffect(() => {
    setValue(() => source.get())
    return source.follow((next) => setValue(() => next))
  }, [source])
  return value
}

/** Of the tab: neither streams nor refreshes run while no one can see them. */
export const isVisible = signal(document.visibilityState === "visible")
document.addEventListener("visibilitychange", () => isVisible.set(document.visibilityState === "visible"))
