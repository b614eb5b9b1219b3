import { it } from "@effect/vitest"
import { TestRuntime } from "duroxide-prisma/testing"
import * as App from "./badInput/app.ts"
import * as cases from "./badInput/cases.ts"

it.layer(TestRuntime.layer(App.runtime))("Bad input, in memory and virtual time", (it) => {
  cases.register((name, run) => it.effect(name, () => run))
})
