export * as Health from "./Health.ts"
