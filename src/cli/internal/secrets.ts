/**
 * The last guard before standard error: whatever a message quotes, passwords of URLs do not leave the process.
 */
export const withoutPasswords = (text: string): string =>
  text
    // Up to the last "@": a password that is not percent-encoded may have one. The example in messages is kept.
    .replace(/(\w+:\/\/)(?!user:password@host:5432\/(?:database|name)[,.;]?(?:\s|$))[^\s"'`]*@/g, "$1***@")
    .replace(/([?&]password=)[^&\s"'`]+/gi, "$1***")
