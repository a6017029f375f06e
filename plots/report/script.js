// SPDX-License-Identifier: MIT
// Sorts by a column: numbers as numbers, what has none last. data-v is a number with its unit taken into account.
document.querySelectorAll('table').forEach(t=>t.querySelectorAll('th').forEach((th,c)=>{
const b=document.createElement('button');b.append(...th.childNodes);th.append(b);b.onclick=()=>{
const up=th.getAttribute('aria-sort')!='ascending',s=up?1:-1,body=t.tBodies[0];
t.querySelectorAll('th').forEach(x=>x.removeAttribute('aria-sort'));
th.setAttribute('aria-sort',up?'ascending':'descending');
const n=th.classList.contains('n'),k=r=>{const d=r.cells[c];if(!d)return n?NaN:'';
return n?parseFloat(d.dataset.v??d.textContent):d.textContent};
const rows=[...body.rows].map((r,i)=>[k(r),i,r]);
rows.sort((x,y)=>n?(isNaN(x[0])?isNaN(y[0])?x[1]-y[1]:1:isNaN(y[0])?-1:s*(x[0]-y[0])||x[1]-y[1])
:s*x[0].localeCompare(y[0],undefined,{numeric:true})||x[1]-y[1]);
body.append(...rows.map(r=>r[2]))}}))
