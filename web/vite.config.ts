import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

/** The main API of a local `runlake all`, which answers the requests of the development server. */
const mainApi = 'http://127.0.0.1:1984';

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react()],
  server: { host: '127.0.0.1', proxy: { '/api': mainApi } },
  build: {
    outDir: '../dist/web',
    emptyOutDir: true,
    target: 'es2023',
    // The minifier of Vite has a binary for each platform; esbuild is installed for the build anyway.
    cssMinify: 'esbuild',
    // The content security policy allows only scripts and fonts with an address of their own.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
});
