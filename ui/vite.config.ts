import { gzipSync } from "node:zlib"
import { defineConfig, type Plugin } from "vite"

const mostBytes = 200_000

/** Where a dashboard is mounted. */
const { origin, pathname } = new URL(process.env["UI_API"] ?? "http://127.0.0.1:4983")

/** Prints what a browser downloads, compressed, and fails when it grows beyond what a slow line bears. */
const size = (): Plugin => ({
  name: "size",
  writeBundle(_options, bundle) {
    const bytes = Object.values(bundle)
      .map((file) => gzipSync(file.type === "chunk" ? file.code : file.source).length)
      .reduce((sum, length) => sum + length, 0)
    if (bytes > mostBytes) this.error(`${bytes} bytes compressed: more than ${mostBytes}`)
    this.info(`${Math.round(bytes / 1000)} kB compressed, of ${mostBytes / 1000} kB`)
  }
})

// The page is served below a path that only the application knows, so every URL of it is relative.
export default defineConfig({
  root: import.meta.dirname,
  base: "./",
  build: {
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023"
  },
  plugins: [size()],
  server: {
    port: 4984,
    strictPort: true,
    proxy: {
      "/api": { target: origin, changeOrigin: true, rewrite: (path) => pathname.replace(/\/$/, "") + path }
    }
  }
})
