/**
 * Attributes on the command line.
 */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type * as Attribute from "../../model/Attribute.ts"
import * as Attributes from "../../operating/attributes.ts"
import { type CommandError, misused } from "./failure.ts"

/** What the flag `--attribute` of `start` says: each one gives an attribute. */
export const given = Flag.String("attribute").pipe(
  Flag.withMetavar("<name>=<text>"),
  Flag.withDescription(
    "An attribute: customer=c1 is a text, amount:=12 and due:=2026-12-01T08:00Z a number and a time"
  ),
  Flag.atLeast(0)
)

/** What the flag `--attribute` of a filter says. */
export const wanted = Flag.String("attribute").pipe(
  Flag.withMetavar("<name>=<text>"),
  Flag.withDescription(
    "Only those with this attribute: customer=c1 is a text; with a colon a number or a time: amount:=12, 'amount:>=10', " +
      "'due:<2026-12-01'. Several must all hold"
  ),
  Flag.atLeast(0)
)

export const attributesOf = (texts: ReadonlyArray<string>): Effect.Effect<Attribute.Attributes, CommandError> =>
  Effect.mapError(Attributes.attributesOf(texts), ofFlag)

export const conditionsOf = (
  texts: ReadonlyArray<string>
): Effect.Effect<Attribute.Conditions | undefined, CommandError> =>
  Effect.mapError(Attributes.conditionsOf(texts), ofFlag)

// internal

const ofFlag = ({ message }: Attributes.AttributeUnreadable) => misused(`--attribute: ${message}`)
