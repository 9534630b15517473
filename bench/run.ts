import { readdirSync } from 'node:fs';
import { runBench } from './started.ts';

/** `npm run bench -- NAME`: runs one bench. Each prints one line of JSON last and ends with status 0, target met or not. */
const parts = ['run', 'started', 'stack', 'engines', 'figures'];
const names = readdirSync(import.meta.dirname, { withFileTypes: true })
  .filter((entry) => entry.name.endsWith('.ts'))
  .map((entry) => entry.name.replace(/\.ts$/, ''))
  .filter((name) => !parts.includes(name));
const [name] = process.argv.slice(2);

if (name === undefined || !names.includes(name)) {
  console.log(`usage: npm run bench -- NAME\nbenches: ${names.join(', ')}`);
  process.exitCode = name === undefined ? 0 : 2;
} else {
  await runBench(() => import(`./${name}.ts`));
}
