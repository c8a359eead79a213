// Builds and changes elements. Data reaches the document only as text nodes and as values of known attributes: there is no
// innerHTML on this page.

// element('td', {class: 'name', title: text}, child, 'text'): null children are left out.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

function svgElement(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);

// The setters below leave the document alone if nothing has changed: most figures stay the same for many updates.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (value === null) {
    node.removeAttribute(name);
  } else if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

function setClass(node, name, isSet) {
  if (node.classList.contains(name) !== isSet) node.classList.toggle(name, isSet);
}

function setHidden(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}

// Sets a property of the style in percent. (Through the object model: the policy of the page forbids style attributes.)
function setPercent(node, property, share) {
  const text = `${(Math.min(Math.max(share, 0), 1) * 100).toFixed(2)}%`;
  if (node.style[property] !== text) node.style[property] = text;
}

// Makes the children of a node equal to a list, moving as few as necessary, so that focus and selection survive.
function setChildren(node, children) {
  const wanted = new Set(children);
  for (const child of Array.from(node.childNodes)) {
    if (!wanted.has(child)) child.remove();
  }
  children.forEach((child, index) => {
    if (node.childNodes[index] !== child) node.insertBefore(child, node.childNodes[index] ?? null);
  });
}

// A list of terms and values that is updated in place: update([['Evicted', '12'], …]); null values are left out.
class TermList {
  constructor(className = 'terms') {
    this.node = element('dl', {class: className});
    this.entries = new Map();
  }

  update(pairs) {
    const nodes = [];
    for (const [term, text, title] of pairs) {
      if (text === null || text === undefined) continue;
      let entry = this.entries.get(term);
      if (!entry) {
        const value = element('dd');
        entry = {value, node: element('div', {}, element('dt', {}, term), value)};
        this.entries.set(term, entry);
      }
      setText(entry.value, text);
      if (title !== undefined) setAttribute(entry.value, 'title', title);
      nodes.push(entry.node);
    }
    setChildren(this.node, nodes);
  }
}

// A list of lines of text that is updated in place.
class Lines {
  constructor(className) {
    this.node = element('ul', {class: className});
  }

  update(texts) {
    while (this.node.children.length > texts.length) this.node.lastElementChild.remove();
    while (this.node.children.length < texts.length) this.node.append(element('li', {dir: 'auto'}));
    texts.forEach((text, index) => setText(this.node.children[index], text));
    setHidden(this.node, texts.length === 0);
  }
}
