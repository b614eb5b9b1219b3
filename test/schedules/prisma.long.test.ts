import { outcomes } from "./utils/outcomes.ts"
import { prisma } from "./utils/prismaStore.ts"
import { suite } from "./utils/suite.ts"

suite("prisma", prisma)
outcomes("prisma", prisma)
