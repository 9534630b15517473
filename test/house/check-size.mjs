// House rule: a source file owns one operation; none is over 400 lines, and the median stays under 150.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const largest = 400;
const largestMedian = 150;
const files = execFileSync('git', ['ls-files', '*.ts', '*.mjs', '*.cjs'], { encoding: 'utf8' }).trim().split('\n');
const sizes = files.map((file) => ({ file, lines: readFileSync(file, 'utf8').split('\n').length - 1 }));
sizes.sort((a, b) => a.lines - b.lines);
const tooLarge = sizes.filter(({ lines }) => lines > largest);
const median = sizes[Math.floor(sizes.length / 2)]?.lines ?? 0;
const badNames = files.filter((file) => /(^|\/)(utils?|helpers?|common|manager)(\/|\.)/.test(file));

for (const { file, lines } of tooLarge)
  console.error(`${file}: ${lines} lines, over ${largest}: does it own one operation?`);
for (const file of badNames) console.error(`${file}: the name says nothing`);
if (median > largestMedian) console.error(`the median file has ${median} lines, over ${largestMedian}`);
if (tooLarge.length > 0 || badNames.length > 0 || median > largestMedian) process.exit(1);
