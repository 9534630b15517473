// Fails the build if the browser loads more than the limit before the first screen: index.html and the scripts and
// styles that it names. Sizes are those of gzip.
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const maxBytes = 250_000;
const built = new URL('../../dist/web/', import.meta.url);
const page = readFileSync(new URL('index.html', built), 'utf8');
const files = ['index.html', ...[...page.matchAll(/(?:src|href)="\/([^"]+\.(?:js|css))"/g)].map(([, file]) => file)];
const sizes = files.map((file) => ({ file, bytes: gzipSync(readFileSync(new URL(file, built))).length }));
const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0);

if (/<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=/.test(page)) {
  console.error('dist/web/index.html has inline scripts or styles, which the content security policy refuses');
  process.exitCode = 1;
}
if (total > maxBytes) {
  for (const { file, bytes } of sizes) console.error(`${file}: ${bytes} bytes`);
  console.error(`the initial load of the dashboard has ${total} bytes compressed, over ${maxBytes}`);
  process.exitCode = 1;
}
