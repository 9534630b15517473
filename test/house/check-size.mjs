// House rule: a source file contains one operation; at most 400 lines a file, and a median of at most 150.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const maxLines = 400;
const maxMedian = 150;
const files = execFileSync('git', ['ls-files', '*.ts', '*.mjs', '*.cjs'], { encoding: 'utf8' }).trim().split('\n');
const sizes = files.map((file) => ({ file, lines: readFileSync(file, 'utf8').split('\n').length - 1 }));
sizes.sort((a, b) => a.lines - b.lines);
const tooLarge = sizes.filter(({ lines }) => lines > maxLines);
const median = sizes[Math.floor(sizes.length / 2)]?.lines ?? 0;
const badNames = files.filter((file) => /(^|\/)(utils?|helpers?|common|manager)(\/|\.)/.test(file));

for (const { file, lines } of tooLarge)
  console.error(`${file}: ${lines} lines, over ${maxLines}: does it contain one operation?`);
for (const file of badNames) console.error(`${file}: the name is too general`);
if (median > maxMedian) console.error(`the median file has ${median} lines, over ${maxMedian}`);
if (tooLarge.length > 0 || badNames.length > 0 || median > maxMedian) process.exit(1);
