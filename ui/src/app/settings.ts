/** What a person has chosen for this browser. */
import { type Signal, signal } from "../client/signal.ts"

export type Theme = "system" | "light" | "dark"

const stored = <A extends string>(name: string, initial: A): Signal<A> => {
  const key = `duroxide-prisma/${name}`
  const setting = signal((localStorage.getItem(key) ?? initial) as A)
  setting.follow((value) => localStorage.setItem(key, value))
  return setting
}

export const theme = stored<Theme>("theme", "system")
export const hidePayloads = stored<"yes" | "no">("hide-payloads", "no")

const applyTheme = (value: Theme) => {
  if (value === "system") delete document.documentElement.dataset["theme"]
  else document.documentElement.dataset["theme"] = value
}
applyTheme(theme.get())
theme.follow(applyTheme)
